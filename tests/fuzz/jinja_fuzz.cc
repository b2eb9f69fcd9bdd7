// Whatever the bytes are, they are a template that renders within its limits, the same each time,
// or they are refused. What stands before a zero byte is the template, what stands behind it JSON
// for its variables.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "jinja/template.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {
namespace {

using nlohmann::ordered_json;

void require_clean(const Status& status) {
  require(status.code() != StatusCode::kInternal && !status.message().empty());
  for (const char c : status.message()) require(static_cast<unsigned char>(c) >= 0x20);
}

ordered_json default_variables() {
  return ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be brief."},
                 {"role": "user", "content": [{"type": "text", "text": "Grüße 🙂"}]},
                 {"role": "assistant", "content": null, "tool_calls": [
                   {"type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "bos_token": "<s>", "add_generation_prompt": true,
    "n": 7, "f": 2.5, "s": "a,b c", "x": [3, 1, 2], "d": {"b": 1, "a": {"z": null}}})");
}

}  // namespace
}  // namespace aerie

AERIE_FUZZ_TARGET(jinja) {
  using namespace aerie;
  static const ordered_json otherwise = default_variables();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  jinja::Limits limits;
  limits.steps = 20000;
  limits.memory_bytes = size_t{4} << 20;
  limits.output_bytes = size_t{1} << 20;
  const auto parsed = jinja::Template::parse(input.substr(0, end), limits);
  if (!parsed.ok()) {
    require_clean(parsed.status());
    return 0;
  }
  ordered_json given = ordered_json::value_t::discarded;
  if (end < input.size()) given = ordered_json::parse(input.substr(end + 1), nullptr, false);
  const ordered_json& values = given.is_object() ? given : otherwise;
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : values.get_ref<const ordered_json::object_t&>()) {
    variables.push_back({name, &value});
  }
  const std::tm now{};
  const auto first = parsed->render(variables, now);
  const auto second = parsed->render(variables, now);
  require(first.ok() == second.ok());
  if (first.ok()) {
    require(first.value() == second.value() && first.value().size() <= limits.output_bytes);
  } else {
    require_clean(first.status());
  }
  return 0;
}
