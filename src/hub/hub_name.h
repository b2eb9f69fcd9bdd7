// What a model is called on the Hugging Face hub: ORG/REPO[@REVISION][:QUANT or FILE].
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aerie {

struct HubName {
  std::string repo;               // "ORG/REPO"
  std::string revision = "main";  // a branch, a tag or a commit
  std::string pick;               // a quantisation or a file of the repository; empty: none

  friend bool operator==(const HubName&, const HubName&) = default;
};

// None for what has another shape, such as a path with more than one slash, with a leading dot, or
// that ends like a file of weights (models/x.gguf). The parts are safe in paths and addresses.
std::optional<HubName> parse_hub_name(std::string_view text);

// As it is written; "@main" is left out.
std::string to_string(const HubName& name);

// Whether a repository's file may have that name below a folder of ours: relative, of slashes,
// without empty, "." and ".." parts, backslashes and control characters.
bool is_safe_file_name(std::string_view name);

// 40 hexadecimal digits: a commit, which never changes what it names.
bool is_commit(std::string_view revision);
// `digits` hexadecimal digits in lower case.
bool is_hex(std::string_view text, size_t digits);

// Whether the name ends as files of weights do: ".gguf", ".safetensors", ".bin", ".pt", ".pth".
bool is_weights_file(std::string_view name);

}  // namespace aerie
