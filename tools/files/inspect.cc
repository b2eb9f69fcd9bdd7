#include "tools/files/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "format/gguf/gguf.h"
#include "format/text.h"
#include "format/torch/torch_folder.h"
#include "hub/locate.h"
#include "model/import/head_file.h"
#include "model/import/hugging_face_file.h"
#include "model/import/predictor_file.h"

namespace aerie {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextLimit = 60;     // bytes of a string in a table
constexpr size_t kTextElements = 6;   // elements of an array in a table
constexpr size_t kElementLimit = 24;  // bytes of a string in an array in a table
constexpr size_t kJsonElements = 64;  // a longer array is cut to kJsonCutElements in JSON
constexpr size_t kJsonCutElements = 16;

struct TypeTotal {
  std::string_view name;
  bool supported = false;
  int64_t count = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
};

// In order of first appearance, all unknown types in one. A tensor of unknown type adds no
// elements: its sizes are not held against the file's.
std::vector<TypeTotal> totals_by_type(const ModelFile& file) {
  std::vector<TypeTotal> totals;
  for (const TensorInfo& tensor : file.tensors()) {
    auto it = std::ranges::find(totals, tensor.type_name, &TypeTotal::name);
    if (it == totals.end()) {
      totals.push_back({tensor.type_name, tensor.dtype.has_value(), 0, 0, 0});
      it = totals.end() - 1;
    }
    const Shape& shape = tensor.shape;
    ++it->count;
    if (tensor.bytes > 0) it->elements += shape[0] * shape[1] * shape[2] * shape[3];
    it->bytes += tensor.bytes;
  }
  return totals;
}

int64_t parameters(const std::vector<TypeTotal>& totals) {
  int64_t sum = 0;
  for (const TypeTotal& total : totals) sum += total.elements;
  return sum;
}

std::string_view string_or_empty(const ModelFile& file, std::string_view key) {
  const Expected<std::string_view> value = file.string(key);
  return value.ok() ? *value : std::string_view();
}

std::string readable_bytes(int64_t bytes) {
  double value = static_cast<double>(bytes);
  const char* unit = "bytes";
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return bytes < 1024 ? fmt::format("{} bytes", bytes)
                      : fmt::format("{:.1f} {} ({} bytes)", value, unit, bytes);
}

std::string readable_count(int64_t count) {
  double value = static_cast<double>(count);
  const char* unit = "";
  for (const char* larger : {" thousand", " million", " billion", " trillion"}) {
    if (value < 1000) break;
    value /= 1000;
    unit = larger;
  }
  return count < 1000 ? std::to_string(count) : fmt::format("{:.1f}{} ({})", value, unit, count);
}

// A single-precision number is shown with the digits that it has: 1e-05, not 9.999999747378752e-06.
template <typename T>
std::string number_text(const T& number, bool single) {
  if constexpr (std::is_same_v<T, double>) {
    if (single) return fmt::format("{}", static_cast<float>(number));
  }
  return fmt::format("{}", number);
}

template <typename T>
std::string element_text(const T& element, bool single) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return fmt::format("\"{}\"", printable(element, kElementLimit));
  } else {
    return number_text(element, single);
  }
}

template <typename T>
std::string array_text(const std::vector<T>& elements, bool single) {
  std::string text = "[";
  const size_t shown = std::min(elements.size(), kTextElements);
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += ", ";
    text += element_text<T>(elements[i], single);
  }
  if (shown < elements.size()) {
    fmt::format_to(std::back_inserter(text), ", and {} more", elements.size() - shown);
  }
  return text + "]";
}

std::string value_text(const MetadataValue& value) {
  const bool single = value.type_name.ends_with("f32");
  if (const auto* scalar = std::get_if<MetadataScalar>(&value.value)) {
    if (const auto* text = std::get_if<std::string_view>(scalar)) {
      return printable(*text, kTextLimit);
    }
    return std::visit([&](const auto& number) { return number_text(number, single); }, *scalar);
  }
  if (const auto* array = std::get_if<MetadataArray>(&value.value)) {
    return std::visit([&](const auto& elements) { return array_text(elements, single); }, *array);
  }
  return "(not shown)";
}

// Columns as wide as their widest cell; the first `left` of them aligned left, the others right.
void write_table(const std::vector<std::vector<std::string>>& rows, size_t left,
                 std::ostream& out) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i < left) {
        fmt::format_to(std::back_inserter(line), "  {:<{}}", row[i], widths[i]);
      } else {
        fmt::format_to(std::back_inserter(line), "  {:>{}}", row[i], widths[i]);
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

void write_summary(const ModelFile& file, const std::vector<TypeTotal>& totals, std::ostream& out) {
  const auto line = [&](std::string_view what, const std::string& value) {
    if (!value.empty()) out << fmt::format("{:<13} {}\n", what, value);
  };
  line("File:", printable(file.name(), 4096));
  line("Size:", readable_bytes(file.file_bytes()));
  line("Format:", file.format());
  line("Architecture:", printable(string_or_empty(file, "general.architecture"), kTextLimit));
  line("Name:", printable(string_or_empty(file, "general.name"), kTextLimit));
  line("Parameters:", readable_count(parameters(totals)));
  if (has_predictors(file))
    line("Module:", "multi-token prediction (--speculate mtp; auto takes it)");
}

void write_text(const ModelFile& file, const InspectOptions& options, std::ostream& out) {
  const std::vector<TypeTotal> totals = totals_by_type(file);
  write_summary(file, totals, out);
  out << fmt::format("\nMetadata ({} keys)\n", file.metadata().size());
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : file.metadata()) {
    rows.push_back({printable(key), std::string(value.type_name), value_text(value)});
  }
  write_table(rows, 3, out);

  out << fmt::format("\nTensors ({})\n", file.tensors().size());
  rows.assign(1, {"type", "tensors", "parameters", "bytes"});
  for (const TypeTotal& total : totals) {
    const std::string name =
        fmt::format("{}{}", total.name, total.supported ? "" : " (unsupported)");
    rows.push_back({name, std::to_string(total.count), std::to_string(total.elements),
                    std::to_string(total.bytes)});
  }
  if (!totals.empty()) write_table(rows, 1, out);
  if (!options.tensors || totals.empty()) return;

  out << '\n';
  rows.assign(1, {"name", "type", "shape", "bytes", "offset"});
  for (const TensorInfo& tensor : file.tensors()) {
    rows.push_back({printable(tensor.name, 512), std::string(tensor.type_name),
                    shape_to_string(tensor.shape), std::to_string(tensor.bytes),
                    std::to_string(tensor.offset)});
  }
  write_table(rows, 3, out);
}

Json value_json(const MetadataValue& value) {
  Json json;
  json["type"] = value.type_name;
  if (const auto* scalar = std::get_if<MetadataScalar>(&value.value)) {
    json["value"] = std::visit([](const auto& number) { return Json(number); }, *scalar);
  } else if (const auto* array = std::get_if<MetadataArray>(&value.value)) {
    std::visit(
        [&]<typename T>(const std::vector<T>& elements) {
          const bool cut = elements.size() > kJsonElements;
          Json list = Json::array();
          for (size_t i = 0; i < (cut ? kJsonCutElements : elements.size()); ++i) {
            list.push_back(static_cast<T>(elements[i]));
          }
          json["length"] = elements.size();
          json["truncated"] = cut;
          json["value"] = std::move(list);
        },
        *array);
  } else {
    json["value"] = nullptr;
  }
  return json;
}

void write_json(const ModelFile& file, std::string_view kind, const InspectOptions& options,
                std::ostream& out) {
  const std::vector<TypeTotal> totals = totals_by_type(file);
  Json json;
  json["file"] = file.name();
  json["bytes"] = file.file_bytes();
  const auto* gguf = dynamic_cast<const GgufFile*>(&file);
  json["format"] = kind;
  if (gguf != nullptr) json["version"] = gguf->version();
  json["architecture"] = string_or_empty(file, "general.architecture");
  json["name"] = string_or_empty(file, "general.name");
  json["parameters"] = parameters(totals);
  json["multi_token_prediction"] = has_predictors(file);
  json["metadata"] = Json::object();
  for (const auto& [key, value] : file.metadata()) {
    json["metadata"].push_back({std::string(key), value_json(value)});
  }
  json["tensor_count"] = file.tensors().size();
  json["types"] = Json::array();
  for (const TypeTotal& total : totals) {
    json["types"].push_back({{"type", total.name},
                             {"supported", total.supported},
                             {"tensors", total.count},
                             {"parameters", total.elements},
                             {"bytes", total.bytes}});
  }
  if (options.tensors) {
    json["tensors"] = Json::array();
    for (const TensorInfo& tensor : file.tensors()) {
      json["tensors"].push_back({{"name", tensor.name},
                                 {"type", tensor.type_name},
                                 {"shape", tensor.shape},
                                 {"bytes", tensor.bytes},
                                 {"offset", tensor.offset}});
    }
  }
  // Strings in a file need not be UTF-8, which JSON must be.
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

struct Opened {
  std::unique_ptr<ModelFile> file;
  std::string_view kind;  // for programs
};

// A model, or what a draft head comes as. Of what is neither, the model's error says what is wrong.
Expected<Opened> open(const std::string& path) {
  Opened opened;
  if (is_torch_path(path)) {
    AERIE_ASSIGN_OR_RETURN(opened.file, open_torch_model(path));
    opened.kind = "pytorch";
    return opened;
  }
  Expected<std::unique_ptr<ModelFile>> model = open_model_file(path);
  if (model.ok()) {
    opened.file = *std::move(model);
    opened.kind = dynamic_cast<const GgufFile*>(opened.file.get()) ? "gguf" : "hugging_face";
    return opened;
  }
  std::error_code ignored;
  const bool may_be_head =
      path.ends_with(".safetensors") || std::filesystem::is_directory(path, ignored);
  if (!may_be_head) return model.status();
  Expected<std::unique_ptr<HeadFile>> head = HeadFile::open(path, {});
  if (!head.ok()) return path.ends_with(".safetensors") ? head.status() : model.status();
  opened.file = *std::move(head);
  opened.kind = "safetensors";
  return opened;
}

}  // namespace

Status inspect(const std::string& name, const InspectOptions& options, std::ostream& out) {
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(name, LocateFor::kHead));
  AERIE_ASSIGN_OR_RETURN(const Opened opened, open(path));
  if (options.json) {
    write_json(*opened.file, opened.kind, options, out);
  } else {
    write_text(*opened.file, options, out);
  }
  return Status();
}

}  // namespace aerie
