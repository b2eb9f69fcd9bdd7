#include "jinja/template.h"

#include <utility>

#include "format/text.h"
#include "jinja/interpreter.h"
#include "jinja/syntax/parser.h"
#include "jinja/values/json_values.h"

namespace aerie::jinja {

Template::Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

Expected<Template> Template::parse(std::string_view source, const Limits& limits) {
  AERIE_ASSIGN_OR_RETURN(auto program, parse_program(source, limits));
  return Template(std::move(program));
}

Expected<std::string> Template::render(std::span<const Variable> variables,
                                       std::optional<std::tm> now) const {
  Runtime runtime(program_->limits, now);
  Scope* scope = runtime.scope(nullptr);
  for (const auto& [name, json] : variables) {
    const auto found = program_->names.find(name);
    if (found == program_->names.end()) continue;
    scope->set(found->second, from_json(runtime, *json));
    if (runtime.failed()) return runtime.status().with_context("the variable " + printable(name));
  }
  TextBuilder out(runtime, TextBuilder::Output{});
  Interpreter(runtime).run(*program_, scope, out);
  if (!runtime.spend(0)) return runtime.status();
  return out.take();
}

bool Template::mentions(std::string_view name) const {
  return program_->names.find(name) != program_->names.end();
}

}  // namespace aerie::jinja
