// Jinja templates, as Hugging Face sets Jinja up for chat templates: trim_blocks, lstrip_blocks,
// break and continue, {% generation %}, raise_exception(), strftime_now(), and a tojson that
// escapes neither HTML nor what is not ASCII. Unlike there, a template may change lists and dicts:
// they are copies.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "jinja/limits.h"

namespace aerie::jinja {

struct Program;

struct Variable {
  std::string_view name;
  const nlohmann::ordered_json* value;  // not null; outlives the rendering
};

// Immutable, cheap to copy, safe to share between threads.
class Template {
 public:
  // kInvalidData for what is no Jinja; kUnsupported for a tag, filter or test that is not known,
  // naming it; kResourceExhausted for what is beyond the limits. Messages name line and column.
  static Expected<Template> parse(std::string_view source, const Limits& limits = {});

  // kInvalidArgument where the template fails with these variables (or refuses them: its
  // raise_exception()); kUnsupported for a filter or test that is named by a value;
  // kResourceExhausted, naming the limit. Takes time and memory within the limits whatever the
  // template and the variables are. `now`: what strftime_now() shows; the local time if absent.
  Expected<std::string> render(std::span<const Variable> variables,
                               std::optional<std::tm> now = std::nullopt) const;

  // Whether the template mentions a variable of this name.
  bool mentions(std::string_view name) const;

 private:
  explicit Template(std::shared_ptr<const Program> program);

  std::shared_ptr<const Program> program_;
};

}  // namespace aerie::jinja
