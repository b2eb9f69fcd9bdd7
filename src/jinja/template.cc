#include "jinja/template.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "format/text.h"
#include "jinja/interpreter.h"
#include "jinja/syntax/parser.h"

namespace aerie::jinja {
namespace {

using nlohmann::ordered_json;

// Strings are not copied.
Value from_json(Runtime& runtime, const ordered_json& json, int nesting) {
  if (!runtime.may_nest(nesting)) return {};
  switch (json.type()) {
    case ordered_json::value_t::null:
      return Value::none();
    case ordered_json::value_t::boolean:
      return Value::of(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return Value::of(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned:
      return Value::of(json.get<uint64_t>());
    case ordered_json::value_t::number_float:
      return Value::of(json.get<double>());
    case ordered_json::value_t::string:
      return runtime.borrow(json.get_ref<const std::string&>());
    case ordered_json::value_t::array: {
      Sequence* list = runtime.sequence();
      for (const auto& item : json) runtime.push(list, from_json(runtime, item, nesting + 1));
      return Value::of(list);
    }
    case ordered_json::value_t::object: {
      Dict* dict = runtime.dict();
      for (const auto& [name, member] : json.get_ref<const ordered_json::object_t&>()) {
        runtime.put(dict, runtime.borrow(name), from_json(runtime, member, nesting + 1));
      }
      return Value::of(dict);
    }
    default:
      return runtime.fail("the variables hold something that JSON cannot express");
  }
}

}  // namespace

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
    scope->set(found->second, from_json(runtime, *json, 0));
    if (runtime.failed()) return runtime.status().with_context("the variable " + printable(name));
  }
  TextBuilder out(runtime, TextBuilder::Output{});
  run(runtime, *program_, scope, out);
  if (!runtime.spend(0)) return runtime.status();
  return out.take();
}

bool Template::mentions(std::string_view name) const {
  return program_->names.find(name) != program_->names.end();
}

}  // namespace aerie::jinja
