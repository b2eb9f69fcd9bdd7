#include "format/gguf.h"

#include <fmt/format.h>

#include "format/gguf_parser.h"
#include "format/mapped_file.h"

namespace aerie {

struct GgufFile::Impl {
  MappedFile file;  // empty for parse()d bytes
  std::span<const std::byte> bytes;
  uint32_t version = 0;
};

GgufFile::GgufFile(std::string name)
    : ModelFile(std::move(name)), impl_(std::make_unique<Impl>()) {}
GgufFile::~GgufFile() = default;

Expected<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  AERIE_ASSIGN_OR_RETURN(auto file, parse(mapped.bytes(), path));
  file->impl_->file = std::move(mapped);
  return file;
}

Expected<std::unique_ptr<GgufFile>> GgufFile::parse(std::span<const std::byte> bytes,
                                                    std::string name) {
  Expected<GgufContents> contents = parse_gguf(bytes);
  if (!contents.ok()) return contents.status().with_context(name);
  std::unique_ptr<GgufFile> file(new GgufFile(std::move(name)));
  file->impl_->bytes = bytes;
  file->impl_->version = contents->version;
  file->set_contents(std::move(contents->metadata), std::move(contents->tensors));
  return file;
}

std::string GgufFile::format() const {
  return fmt::format("GGUF version {}", version());
}
uint32_t GgufFile::version() const {
  return impl_->version;
}
int64_t GgufFile::file_bytes() const {
  return static_cast<int64_t>(impl_->bytes.size());
}

TensorView GgufFile::view_of(const TensorInfo& tensor) const {
  return {*tensor.dtype, Device::kCpu, tensor.shape, impl_->bytes.data() + tensor.offset};
}

Expected<TensorView> GgufFile::tensor(std::string_view name) const {
  AERIE_ASSIGN_OR_RETURN(const TensorInfo* tensor, tensor_info(name));
  return view_of(*tensor);
}

Expected<TensorData> GgufFile::read_tensor(const TensorInfo& tensor) const {
  return TensorData{view_of(tensor), {}};
}

void GgufFile::release(const TensorView& view) const {
  if (view.valid()) impl_->file.release({view.data, static_cast<size_t>(view.bytes())});
}

}  // namespace aerie
