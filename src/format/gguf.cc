#include "format/gguf.h"

#include <fmt/format.h>

#include <limits>

#include "format/gguf_parser.h"
#include "format/gguf_types.h"
#include "format/mapped_file.h"
#include "format/text.h"

namespace aerie {

struct GgufFile::Impl {
  std::string name;
  MappedFile file;  // empty for parse()d bytes
  std::span<const std::byte> bytes;
  GgufContents contents;

  Status absent(std::string_view key) const {
    return Status(StatusCode::kNotFound,
                  fmt::format("{}: there is no metadata key '{}'", name, printable(key)));
  }

  Status wrong_kind(std::string_view key, const GgufValue& value, std::string_view wanted) const {
    return Status(StatusCode::kInvalidData,
                  fmt::format("{}: metadata key '{}' is of type {}; {} is wanted", name,
                              printable(key), value.type_name, wanted));
  }

  const GgufValue* find(std::string_view key) const {
    const auto index = contents.metadata_index.find(key);
    return index ? &contents.metadata[*index].second : nullptr;
  }

  // The value under `key` if it is of kind T (GgufScalar, GgufArray).
  template <typename T>
  Expected<const T*> get(std::string_view key, std::string_view wanted) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return absent(key);
    const T* kind = std::get_if<T>(&value->value);
    if (kind == nullptr) return wrong_kind(key, *value, wanted);
    return kind;
  }
};

GgufFile::GgufFile() : impl_(std::make_unique<Impl>()) {}
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
  std::unique_ptr<GgufFile> file(new GgufFile());
  file->impl_->name = std::move(name);
  file->impl_->bytes = bytes;
  file->impl_->contents = std::move(contents).value();
  return file;
}

const std::string& GgufFile::name() const {
  return impl_->name;
}
uint32_t GgufFile::version() const {
  return impl_->contents.version;
}
int64_t GgufFile::file_bytes() const {
  return static_cast<int64_t>(impl_->bytes.size());
}

std::span<const std::pair<std::string_view, GgufValue>> GgufFile::metadata() const {
  return impl_->contents.metadata;
}
std::span<const GgufTensor> GgufFile::tensors() const {
  return impl_->contents.tensors;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  return impl_->find(key);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto index = impl_->contents.tensor_index.find(name);
  return index ? &impl_->contents.tensors[*index] : nullptr;
}

Expected<int64_t> GgufFile::integer(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const GgufScalar* scalar, impl_->get<GgufScalar>(key, "an integer"));
  if (const auto* value = std::get_if<int64_t>(scalar)) return *value;
  const auto* value = std::get_if<uint64_t>(scalar);
  if (value == nullptr) return impl_->wrong_kind(key, *impl_->find(key), "an integer");
  if (*value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Status(StatusCode::kInvalidData, fmt::format("{}: metadata key '{}' is {}, too large",
                                                        name(), printable(key), *value));
  }
  return static_cast<int64_t>(*value);
}

Expected<double> GgufFile::number(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const GgufScalar* scalar, impl_->get<GgufScalar>(key, "a number"));
  if (const auto* value = std::get_if<double>(scalar)) return *value;
  if (const auto* value = std::get_if<int64_t>(scalar)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<uint64_t>(scalar)) return static_cast<double>(*value);
  return impl_->wrong_kind(key, *impl_->find(key), "a number");
}

Expected<bool> GgufFile::boolean(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const GgufScalar* scalar, impl_->get<GgufScalar>(key, "a boolean"));
  if (const auto* value = std::get_if<bool>(scalar)) return *value;
  return impl_->wrong_kind(key, *impl_->find(key), "a boolean");
}

Expected<std::string_view> GgufFile::string(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const GgufScalar* scalar, impl_->get<GgufScalar>(key, "a string"));
  if (const auto* value = std::get_if<std::string_view>(scalar)) return *value;
  return impl_->wrong_kind(key, *impl_->find(key), "a string");
}

Expected<std::span<const std::string_view>> GgufFile::strings(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of strings";
  AERIE_ASSIGN_OR_RETURN(const GgufArray* array, impl_->get<GgufArray>(key, kWanted));
  const auto* values = std::get_if<std::vector<std::string_view>>(array);
  if (values == nullptr) return impl_->wrong_kind(key, *impl_->find(key), kWanted);
  return std::span<const std::string_view>(*values);
}

Expected<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of numbers";
  AERIE_ASSIGN_OR_RETURN(const GgufArray* array, impl_->get<GgufArray>(key, kWanted));
  if (const auto* values = std::get_if<std::vector<double>>(array)) return *values;
  std::vector<double> out;
  if (const auto* values = std::get_if<std::vector<int64_t>>(array)) {
    out.assign(values->begin(), values->end());
  } else if (const auto* unsigned_values = std::get_if<std::vector<uint64_t>>(array)) {
    out.assign(unsigned_values->begin(), unsigned_values->end());
  } else {
    return impl_->wrong_kind(key, *impl_->find(key), kWanted);
  }
  return out;
}

Expected<TensorView> GgufFile::tensor(std::string_view name) const {
  const GgufTensor* tensor = find_tensor(name);
  if (tensor == nullptr) {
    return Status(StatusCode::kNotFound,
                  fmt::format("{}: there is no tensor '{}'", impl_->name, printable(name)));
  }
  if (!tensor->view.valid()) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{}: tensor '{}' is of type {} (number {}), which is not supported; use "
                    "a file whose tensors are of {}",
                    impl_->name, printable(name), tensor->type_name, tensor->type_id,
                    supported_type_names()));
  }
  return tensor->view;
}

void GgufFile::release(const TensorView& view) const {
  if (view.valid()) impl_->file.release({view.data, static_cast<size_t>(view.bytes())});
}

}  // namespace aerie
