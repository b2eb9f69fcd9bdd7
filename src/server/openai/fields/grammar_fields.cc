#include "server/openai/fields/grammar_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

// A schema as an object, or as a string that holds one.
GrammarSpec schema_spec(const Json& schema) {
  GrammarSpec spec;
  spec.kind = GrammarKind::kJsonSchema;
  spec.text = schema.is_string() ? schema.get<std::string>() : json_text(schema);
  return spec;
}

// One of the forms that both structured_outputs and guided_* have.
std::optional<GrammarSpec> read_form(FieldReader& reader, std::string_view key, GrammarKind kind) {
  const Json* value = reader.find(key);
  if (value == nullptr) return std::nullopt;
  GrammarSpec spec;
  spec.kind = kind;
  if (kind == GrammarKind::kJsonSchema) {
    if (value->is_object() || value->is_string() || value->is_boolean()) return schema_spec(*value);
    reader.refuse(key, "must be a JSON schema");
  } else if (kind == GrammarKind::kChoice) {
    const Json* choices = reader.array(key);
    if (choices == nullptr) return std::nullopt;
    for (const Json& choice : *choices) {
      if (!choice.is_string()) {
        reader.refuse(key, "must be an array of strings");
        return std::nullopt;
      }
      spec.choices.push_back(choice.get<std::string>());
    }
    if (spec.choices.empty()) reader.refuse(key, "must have at least one choice");
  } else {
    spec.text = reader.string(key, "");
    if (spec.text.empty()) reader.refuse(key, "must not be empty");
  }
  return reader.failed() ? std::nullopt : std::optional(spec);
}

struct Form {
  std::string_view key;
  GrammarKind kind;
};

constexpr Form kStructured[] = {{"json", GrammarKind::kJsonSchema},
                                {"regex", GrammarKind::kRegex},
                                {"choice", GrammarKind::kChoice},
                                {"grammar", GrammarKind::kGrammar}};
constexpr Form kGuided[] = {{"guided_json", GrammarKind::kJsonSchema},
                            {"guided_regex", GrammarKind::kRegex},
                            {"guided_choice", GrammarKind::kChoice},
                            {"guided_grammar", GrammarKind::kGrammar},
                            {"grammar", GrammarKind::kGrammar}};

void add_structured(FieldReader& request, std::vector<NamedGrammar>& found) {
  const Json* outputs = request.object("structured_outputs");
  if (outputs == nullptr) return;
  FieldReader reader(*outputs, request.error(), "structured_outputs");
  const size_t before = found.size();
  for (const Form& form : kStructured) {
    if (auto spec = read_form(reader, form.key, form.kind)) {
      found.push_back({std::move(*spec), reader.name_of(form.key)});
    }
  }
  if (reader.boolean("json_object", false)) {
    found.push_back({{GrammarKind::kJsonObject, "", {}}, reader.name_of("json_object")});
  }
  if (found.size() == before) {
    request.refuse("structured_outputs", "must have one of json, regex, choice and grammar");
  }
}

std::string key_of(const GrammarSpec& spec) {
  std::string key = fmt::format("{} {} {} {}", static_cast<int>(spec.kind), spec.strict,
                                spec.text.size(), spec.text);
  for (const std::string& choice : spec.choices) {
    key += fmt::format(" {} {}", choice.size(), choice);
  }
  for (const GrammarSpec& part : spec.parts) key += fmt::format(" ({})", key_of(part));
  return key;
}

}  // namespace

std::optional<NamedGrammar> read_response_format(const Json& format, const std::string& name,
                                                 std::optional<ApiError>& error) {
  FieldReader reader(format, error, name);
  const std::string type = reader.string("type", "");
  if (reader.failed() || type == "text") return std::nullopt;
  if (type == "json_object") return NamedGrammar{{GrammarKind::kJsonObject, "", {}}, name};
  if (type != "json_schema") {
    reader.refuse("type", "must be text, json_object or json_schema");
    return std::nullopt;
  }
  const Json* wrapper = reader.object("json_schema");
  FieldReader inner(wrapper != nullptr ? *wrapper : format, error,
                    wrapper != nullptr ? reader.name_of("json_schema") : name);
  const Json* schema = inner.object("schema");
  if (schema == nullptr) {
    inner.refuse("schema", "must be a JSON schema");
    return std::nullopt;
  }
  return NamedGrammar{schema_spec(*schema), inner.name_of("schema")};
}

std::optional<NamedGrammar> read_grammar(FieldReader& request) {
  std::vector<NamedGrammar> found;
  if (const Json* format = request.object("response_format")) {
    if (auto one = read_response_format(*format, "response_format", request.error())) {
      found.push_back(std::move(*one));
    }
  }
  add_structured(request, found);
  for (const Form& form : kGuided) {
    if (auto spec = read_form(request, form.key, form.kind)) {
      found.push_back({std::move(*spec), std::string(form.key)});
    }
  }
  if (request.failed() || found.empty()) return std::nullopt;
  if (found.size() > 1) {
    request.refuse(found[1].field, "constrains the output as {} does: give one of them",
                   found[0].field);
    return std::nullopt;
  }
  return std::move(found.front());
}

std::shared_ptr<const Grammar> GrammarCache::find(const GrammarSpec& spec) {
  return find(key_of(spec));
}

std::shared_ptr<const Grammar> GrammarCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(newest_first_, key, &Entry::key);
  if (it == newest_first_.end()) return nullptr;
  newest_first_.splice(newest_first_.begin(), newest_first_, it);
  return lend(it->grammar);
}

Expected<std::shared_ptr<const Grammar>> GrammarCache::get(const GrammarSpec& spec,
                                                           std::shared_ptr<const TokenTrie> trie,
                                                           const CompileOptions& options) {
  std::string key = key_of(spec);
  if (auto known = find(key)) return known;
  // Without the lock: this may take long.
  AERIE_ASSIGN_OR_RETURN(auto grammar, compile_grammar(spec, std::move(trie), options));
  const std::lock_guard lock(mutex_);
  newest_first_.push_front({std::move(key), grammar});
  return lend(std::move(grammar));
}

// What is let go may have grown since.
std::shared_ptr<const Grammar> GrammarCache::lend(std::shared_ptr<const Grammar> grammar) {
  const Grammar* lent = grammar.get();
  return {lent, [grammar = std::move(grammar), weak = weak_from_this()](const Grammar*) mutable {
            grammar.reset();
            if (const auto cache = weak.lock()) cache->trim();
          }};
}

void GrammarCache::trim() {
  std::list<Entry> dropped;
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  size_t count = 0;
  for (auto it = newest_first_.begin(); it != newest_first_.end();) {
    const auto entry = it++;
    if (entry->grammar.use_count() > 1) continue;
    const size_t own = entry->key.size() + grammar_bytes(*entry->grammar);
    if (++count <= kMost && bytes + own <= kMostIdleBytes) {
      bytes += own;
    } else {
      dropped.splice(dropped.end(), newest_first_, entry);
    }
  }
}

}  // namespace aerie::server
