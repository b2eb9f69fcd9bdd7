// A model's metadata and tensors, whatever files they come from: a GGUF file, its splits, a Hugging
// Face folder. Names, keys and shapes are GGUF's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "format/name_index.h"
#include "tensor/tensor.h"

namespace aerie {

// A metadata array of numbers or booleans, in the widest type of its kind; or of strings. Arrays of
// arrays are checked and skipped (kept as std::monostate). Strings belong to the ModelFile.
using MetadataArray = std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
                                   std::vector<bool>, std::vector<std::string_view>>;
using MetadataScalar = std::variant<uint64_t, int64_t, double, bool, std::string_view>;

struct MetadataValue {
  std::string_view type_name;  // as a GGUF file declares it: "u32", "string", "array of f32"
  std::variant<std::monostate, MetadataScalar, MetadataArray> value;
};
using Metadata = std::vector<std::pair<std::string_view, MetadataValue>>;

struct TensorInfo {
  std::string_view name;
  std::string_view type_name;  // "q4_1", "iq2_xs"; "unknown" if the file's number is not known
  uint32_t type_id = 0;        // ggml's number of the type; 0 without a dtype: it has none
  Shape shape = {1, 1, 1, 1};  // every size is at least 1
  int64_t offset = 0;          // in its file; 0 if the values are made when they are read
  int64_t bytes = 0;           // of the values; 0 if the type is unknown
  std::optional<DType> dtype;  // none: a type that is not supported

  int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
};

// Gives a tensor a type, and the name, number and bytes that come with it. Requires whole blocks.
void set_type(TensorInfo& tensor, DType type);

// A file that metadata and values come from.
struct SourceFile {
  std::string path;
  int64_t modified = 0;  // nanoseconds since 1970; 0: unknown
  std::span<const std::byte> bytes;
  // Where values lie in it, in any order. What comes before all of them says what they are.
  std::vector<std::span<const std::byte>> tensors;
};

// A tensor's values: a view into a mapped file, which the ModelFile keeps, or of `owned`.
struct TensorData {
  TensorView view;
  Buffer owned;  // empty if the view is of the file
};

// Rows `ids` of a matrix of any type, in that order and each as often as it is named; of a vector
// (one row), the elements. kInvalidArgument for an id that is not one, or without any;
// kUnsupported for elements of a vector of blocks.
Expected<TensorData> select_rows(const TensorData& matrix, std::span<const int32_t> ids);

// Immutable once it is open, so safe to share between threads. All views and string_views live as
// long as the object.
class ModelFile {
 public:
  virtual ~ModelFile() = default;
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  const std::string& name() const { return name_; }  // the path; for messages
  virtual std::string format() const = 0;            // "GGUF version 3"; for people
  virtual int64_t file_bytes() const = 0;            // of all files

  // In the file's order.
  std::span<const std::pair<std::string_view, MetadataValue>> metadata() const { return metadata_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }

  // nullptr if absent.
  const MetadataValue* find(std::string_view key) const;
  const TensorInfo* find_tensor(std::string_view name) const;

  // All that what is here is made of; empty if that cannot be told. The bytes live as long as the
  // object.
  virtual std::vector<SourceFile> sources() const { return {}; }

  // What the files themselves call a tensor; for messages.
  virtual std::string origin_of(std::string_view name) const { return std::string(name); }
  // The same of a metadata key.
  virtual std::string origin_of_key(std::string_view key) const { return std::string(key); }

  // A key's value as the wanted kind. kNotFound if it is absent, kInvalidData if it is of another
  // kind or does not fit; the message names file and key. What they return points into this object.
  Expected<int64_t> integer(std::string_view key) const;
  Expected<double> number(std::string_view key) const;  // integers convert
  Expected<bool> boolean(std::string_view key) const;
  Expected<std::string_view> string(std::string_view key) const;
  Expected<std::span<const std::string_view>> strings(std::string_view key) const;
  // An array of any integer or float type.
  Expected<std::vector<double>> numbers(std::string_view key) const;

  // The description of a tensor that can be read. kNotFound (naming the tensor) if it is absent,
  // kUnsupported (naming its type as well) if the type is not a DType.
  Expected<const TensorInfo*> tensor_info(std::string_view name) const;
  // The same with its values, of the shape and type that it describes. kResourceExhausted if they
  // have to be made and there is no memory.
  Expected<TensorData> read(std::string_view name) const;

  // Whether all that was read so far is what the files held when they were opened: others may write
  // to them, cut them short, or their disk may fail. kInvalidData, naming the file, otherwise. To
  // be asked behind the last read, before anything is made of what was read.
  virtual Status check_intact() const { return {}; }

  // Tells the system that the bytes of `view` will not be needed soon: the pages that lie wholly
  // inside it leave this process's memory and come back from the file when touched. No effect on a
  // view of other memory.
  virtual void release(const TensorView& view) const;

 protected:
  explicit ModelFile(std::string name) : name_(std::move(name)) {}

  // Takes over what the file holds. Requires that no key and no name is there twice.
  void set_contents(Metadata metadata, std::vector<TensorInfo> tensors);
  // The values of one of tensors(), which has a dtype.
  virtual Expected<TensorData> read_tensor(const TensorInfo& tensor) const = 0;

 private:
  template <typename T>
  Expected<const T*> get(std::string_view key, std::string_view wanted) const;
  Status wrong_kind(std::string_view key, std::string_view wanted) const;

  std::string name_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  NameIndex metadata_index_;
  NameIndex tensor_index_;
};

}  // namespace aerie
