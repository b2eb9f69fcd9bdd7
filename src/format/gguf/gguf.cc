#include "format/gguf/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "format/gguf/gguf_parser.h"
#include "format/gguf/gguf_split.h"
#include "format/mapped_file.h"
#include "format/name_index.h"
#include "format/text.h"

namespace aerie {
namespace {

// A file of a model.
struct Part {
  std::string name;
  MappedFile file;  // empty for parse()d bytes
  std::span<const std::byte> bytes;
  GgufContents contents;
  GgufSplit split;
  int64_t tensors = 0;
};

Status parse_part(Part& part) {
  AERIE_ASSIGN_OR_RETURN(part.contents, parse_gguf(part.bytes));
  part.tensors = static_cast<int64_t>(part.contents.tensors.size());
  AERIE_ASSIGN_OR_RETURN(part.split, read_gguf_split(part.contents.metadata));
  return Status();
}

Expected<Part> open_part(const std::string& path) {
  Part part;
  part.name = path;
  AERIE_ASSIGN_OR_RETURN(part.file, MappedFile::open(path));
  part.bytes = part.file.bytes();
  const Status parsed = parse_part(part);
  AERIE_RETURN_IF_ERROR(part.file.check());
  AERIE_RETURN_IF_ERROR(parsed.with_context(path));
  return part;
}

// Part `number` of the model that `known` is a part of.
Expected<Part> open_sibling(const std::string& prefix, int64_t number, const Part& known) {
  const int64_t count = known.split.count;
  const std::string path = gguf_split_path(prefix, number, count);
  Expected<Part> part = open_part(path);
  if (part.status().code() == StatusCode::kNotFound) {
    return not_found("{}: part {} of {} of the model is missing", path, number + 1, count);
  }
  if (!part.ok()) return part;
  const GgufSplit& split = part->split;
  if (split.number == number && split.count == count && split.tensors == known.split.tensors) {
    return part;
  }
  return invalid_data(
      "{}: is part {} of {} of a model of {} tensors by its keys; part {} of {} of {} tensors is "
      "wanted",
      path, split.number + 1, split.count, split.tensors.value_or(0), number + 1, count,
      known.split.tensors.value_or(0));
}

Expected<std::vector<Part>> open_parts(const std::string& path) {
  std::vector<Part> parts;
  AERIE_ASSIGN_OR_RETURN(Part opened, open_part(path));
  if (opened.split.count == 1) {
    parts.push_back(std::move(opened));
    return parts;
  }
  AERIE_ASSIGN_OR_RETURN(const std::string prefix, gguf_split_prefix(path, opened.split));
  for (int64_t i = 0; i < opened.split.count; ++i) {
    // The opened one is mapped twice: less than the trouble of moving it in here.
    AERIE_ASSIGN_OR_RETURN(Part part, open_sibling(prefix, i, opened));
    parts.push_back(std::move(part));
  }
  return parts;
}

Status check_tensors(const std::vector<TensorInfo>& tensors, const GgufSplit& split) {
  const auto count = static_cast<int64_t>(tensors.size());
  if (split.tensors.value_or(count) != count) {
    return {
        StatusCode::kInvalidData,
        fmt::format("the {} parts hold {} tensors, but metadata key 'split.tensors.count' is {}",
                    split.count, count, *split.tensors)};
  }
  NameIndex index;
  const auto twin = index.build(static_cast<uint32_t>(tensors.size()),
                                [&](uint32_t i) { return tensors[i].name; });
  if (!twin) return Status();
  return invalid_data("tensor '{}' is in more than one part", printable(*twin));
}

}  // namespace

struct GgufFile::Impl {
  std::vector<Part> parts;
  std::vector<const std::byte*> values;  // of tensors(), in their order
};

GgufFile::GgufFile(std::string name)
    : ModelFile(std::move(name)), impl_(std::make_unique<Impl>()) {}
GgufFile::~GgufFile() = default;

Status GgufFile::set_parts() {
  std::vector<Part>& parts = impl_->parts;
  std::vector<TensorInfo> tensors = std::move(parts[0].contents.tensors);
  std::vector<const std::byte*>& values = impl_->values;
  values.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) values.push_back(parts[0].bytes.data() + tensor.offset);
  for (Part& part : std::span(parts).subspan(1)) {
    for (const TensorInfo& tensor : part.contents.tensors) {
      tensors.push_back(tensor);
      values.push_back(part.bytes.data() + tensor.offset);
    }
    part.contents.tensors = {};
  }
  Metadata metadata = std::move(parts[0].contents.metadata);
  if (parts.size() > 1) {
    AERIE_RETURN_IF_ERROR(check_tensors(tensors, parts[0].split).with_context(name()));
    std::erase_if(metadata, [](const auto& entry) { return is_gguf_split_key(entry.first); });
  }
  set_contents(std::move(metadata), std::move(tensors));
  return Status();
}

Expected<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path) {
  std::unique_ptr<GgufFile> file(new GgufFile(path));
  AERIE_ASSIGN_OR_RETURN(file->impl_->parts, open_parts(path));
  AERIE_RETURN_IF_ERROR(file->set_parts());
  return file;
}

Expected<std::unique_ptr<GgufFile>> GgufFile::parse(std::span<const std::byte> bytes,
                                                    std::string name) {
  std::unique_ptr<GgufFile> file(new GgufFile(std::move(name)));
  Part& part = file->impl_->parts.emplace_back();
  part.name = file->name();
  part.bytes = bytes;
  AERIE_RETURN_IF_ERROR(parse_part(part).with_context(file->name()));
  if (part.split.count > 1) {
    return not_supported("{}: is part {} of {} of a model, and parts are read from files only",
                         file->name(), part.split.number + 1, part.split.count);
  }
  AERIE_RETURN_IF_ERROR(file->set_parts());
  return file;
}

std::string GgufFile::format() const {
  const size_t parts = impl_->parts.size();
  if (parts == 1) return fmt::format("GGUF version {}", version());
  return fmt::format("GGUF version {} in {} parts", version(), parts);
}
uint32_t GgufFile::version() const {
  return impl_->parts[0].contents.version;
}
int64_t GgufFile::file_bytes() const {
  size_t bytes = 0;
  for (const Part& part : impl_->parts) bytes += part.bytes.size();
  return static_cast<int64_t>(bytes);
}

std::vector<SourceFile> GgufFile::sources() const {
  std::vector<SourceFile> files;
  const std::byte* const* value = impl_->values.data();
  auto tensor = tensors().begin();
  for (const Part& part : impl_->parts) {
    SourceFile& file = files.emplace_back();
    file.path = part.name;
    file.modified = part.file.modified();
    file.bytes = part.bytes;
    for (int64_t i = 0; i < part.tensors; ++i, ++tensor, ++value) {
      file.tensors.emplace_back(*value, static_cast<size_t>(tensor->bytes));
    }
  }
  return files;
}

TensorView GgufFile::view_of(const TensorInfo& tensor) const {
  const auto index = static_cast<size_t>(&tensor - tensors().data());
  return {*tensor.dtype, Device::kCpu, tensor.shape, impl_->values[index]};
}

Expected<TensorView> GgufFile::tensor(std::string_view name) const {
  AERIE_ASSIGN_OR_RETURN(const TensorInfo* tensor, tensor_info(name));
  return view_of(*tensor);
}

Expected<TensorData> GgufFile::read_tensor(const TensorInfo& tensor) const {
  return TensorData{view_of(tensor), {}};
}

Status GgufFile::check_intact() const {
  for (const Part& part : impl_->parts) AERIE_RETURN_IF_ERROR(part.file.check());
  return {};
}

void GgufFile::release(const TensorView& view) const {
  if (!view.valid()) return;
  for (const Part& part : impl_->parts) {
    part.file.release({view.data, static_cast<size_t>(view.bytes())});
  }
}

}  // namespace aerie
