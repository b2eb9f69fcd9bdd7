#include "grammar/schema/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/schema/schema_uri.h"

namespace aerie::grammar {
namespace {

constexpr size_t kMaxQuotedText = size_t{1} << 20;
constexpr std::array kReferences = {"$ref", "$dynamicRef", "$recursiveRef"};

std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) {
    if (c == '~') {
      text += "~0";
    } else if (c == '/') {
      text += "~1";
    } else {
      text += c;
    }
  }
  return text;
}

int hex(char c) {
  const size_t at = std::string_view("0123456789abcdefABCDEF").find(c);
  if (at == std::string_view::npos) return -1;
  return static_cast<int>(at < 16 ? at : at - 6);
}

// "%25" is "%", then "~1" is "/" and "~0" is "~".
std::string unescaped(std::string_view token) {
  std::string plain;
  for (size_t i = 0; i < token.size(); ++i) {
    const bool escape =
        token[i] == '%' && i + 2 < token.size() && hex(token[i + 1]) >= 0 && hex(token[i + 2]) >= 0;
    plain += escape ? static_cast<char>(hex(token[i + 1]) * 16 + hex(token[i + 2])) : token[i];
    if (escape) i += 2;
  }
  std::string key;
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool escape = plain[i] == '~' && i + 1 < plain.size();
    key += escape ? (plain[++i] == '1' ? '/' : '~') : plain[i];
  }
  return key;
}

// Of a "$schema" that is not known: the newest draft, which adds keywords and changes hardly any.
Expected<int> draft_of(const Json& root, bool strict) {
  constexpr int kNewest = 2020;
  const Json* schema = find_key(root, "$schema");
  if (schema == nullptr || !schema->is_string()) return kNewest;
  const auto& name = schema->get_ref<const std::string&>();
  static constexpr std::pair<std::string_view, int> kDrafts[] = {
      {"2020-12", kNewest}, {"2019-09", 2019}, {"draft-07", 7}, {"draft-06", 6}, {"draft-04", 4}};
  for (const auto& [part, draft] : kDrafts) {
    if (name.find(part) != std::string::npos) return draft;
  }
  if (!strict && name.find("draft-03") == std::string::npos) return kNewest;
  return Status(
      StatusCode::kUnsupported,
      fmt::format("#/$schema: '{}' is not supported; drafts 2020-12, 2019-09, 7, 6 and 4 are",
                  name));
}

}  // namespace

const Json* find_key(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto entry = object.find(std::string(key));
  return entry == object.end() ? nullptr : &*entry;
}

bool json_equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a == b;
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) {
    return std::equal(a.begin(), a.end(), b.begin(), json_equal);
  }
  if (!a.is_object()) return a == b;
  return std::all_of(a.items().begin(), a.items().end(), [&](const auto& member) {
    const Json* other = find_key(b, member.key());
    return other != nullptr && json_equal(member.value(), *other);
  });
}

Expected<SchemaDocument> SchemaDocument::read(std::string_view text, bool strict) {
  if (text.size() > kMaxQuotedText) {
    return Status(
        StatusCode::kResourceExhausted,
        fmt::format("the schema has {} bytes; at most {} are read", text.size(), kMaxQuotedText));
  }
  auto root = parse_json(text, "schema");
  if (!root.ok()) {
    const StatusCode code = root.status().code();
    const bool invalid = code == StatusCode::kInvalidData;
    return Status(invalid ? StatusCode::kInvalidArgument : code, root.status().message());
  }
  SchemaDocument document;
  document.root_ = std::make_shared<const Json>(std::move(*root));
  document.strict_ = strict;
  AERIE_ASSIGN_OR_RETURN(document.draft_, draft_of(*document.root_, strict));
  document.bases_.emplace_back();
  document.named_.emplace("", document.root_.get());
  document.index(*document.root_, "#", 0, false);
  return document;
}

// The depth is bounded by that of JSON files.
void SchemaDocument::index(const Json& part, const std::string& pointer, size_t base,
                           bool is_data) {
  pointers_.emplace(&part, pointer);
  if (part.is_object()) {
    if (!is_data) base = index_names(part, base);
    for (const auto& [key, value] : part.items()) {
      const bool holds_data =
          key == "enum" || key == "const" || key == "default" || key == "examples";
      index(value, pointer + "/" + escaped(key), base, is_data || holds_data);
    }
  } else if (part.is_array()) {
    for (size_t i = 0; i < part.size(); ++i) {
      index(part[i], fmt::format("{}/{}", pointer, i), base, is_data);
    }
  }
}

const Json& SchemaDocument::add(Json schema, const Json& origin, bool partial) {
  added_.push_back(std::move(schema));
  index_own(added_.back(), where(origin), partial);
  return added_.back();
}

void SchemaDocument::index_own(const Json& part, const std::string& pointer, bool partial) {
  pointers_.emplace(&part, pointer);
  own_.insert(&part);
  if (partial) partial_.insert(&part);
  for (const Json& inner : part) {
    if (part.is_structured()) index_own(inner, pointer, partial);
  }
}

std::string SchemaDocument::reference(const Json& schema) const {
  std::string pointer;
  for (const char c : where(schema)) pointer += c == '%' ? std::string("%25") : std::string(1, c);
  return pointer;
}

size_t SchemaDocument::index_names(const Json& part, size_t base) {
  const auto add = [&](const std::string& uri) {
    // Of two it is not known which is meant.
    const auto [entry, added] = named_.emplace(uri, &part);
    if (!added) entry->second = nullptr;
  };
  const bool refers = find_key(part, "$ref") != nullptr;
  for (const char* keyword : {"unevaluatedProperties", "unevaluatedItems"})
    asks_for_unevaluated_ |= find_key(part, keyword) != nullptr;
  const Json* id = id_of(part);
  if (id != nullptr && id->is_string() && !(refers && ref_stands_alone())) {
    const auto& name = id->get_ref<const std::string&>();
    if (name.starts_with('#')) {
      // Draft 7 had "$id": "#name" for an anchor.
      if (ref_stands_alone() && name.size() > 1) add(bases_[base] + name);
    } else {
      std::string uri = join_uri(bases_[base], name);
      uri.resize(std::min(uri.find('#'), uri.size()));
      add(uri);
      bases_.push_back(std::move(uri));
      base = bases_.size() - 1;
    }
  }
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const Json* anchor = find_key(part, keyword);
    if (anchor != nullptr && anchor->is_string())
      add(bases_[base] + "#" + anchor->get<std::string>());
  }
  index_dynamic(part, base);
  if (std::any_of(kReferences.begin(), kReferences.end(),
                  [&](const char* keyword) { return find_key(part, keyword) != nullptr; })) {
    base_of_.emplace(&part, base);
  }
  return base;
}

void SchemaDocument::index_dynamic(const Json& part, size_t base) {
  if (&part == root_.get()) root_base_ = base;
  const Json* anchor = find_key(part, "$dynamicAnchor");
  const Json* recursive = find_key(part, "$recursiveAnchor");
  const auto add = [&](const std::string& name) {
    dynamic_[name].push_back(&part);
    if (base == root_base_) outermost_.insert(&part);
  };
  if (anchor != nullptr && anchor->is_string()) add(anchor->get<std::string>());
  if (recursive != nullptr && recursive->is_boolean() && recursive->get<bool>()) add("");
}

const Json* SchemaDocument::id_of(const Json& part) const {
  return find_key(part, draft_ == 4 ? "id" : "$id");
}

std::string SchemaDocument::where(const Json& part) const {
  const auto entry = pointers_.find(&part);
  return entry == pointers_.end() ? "#" : entry->second;
}

Status SchemaDocument::error(StatusCode code, const Json& schema, std::string_view keyword,
                             std::string_view what) const {
  return {code, fmt::format("{}/{}: {}", where(schema), escaped(keyword), what)};
}

bool SchemaDocument::refers_alone(const Json& schema) const {
  return find_key(schema, "$ref") != nullptr && (ref_stands_alone() || is_own(schema));
}

Expected<std::vector<const Json*>> SchemaDocument::references(const Json& schema) const {
  std::vector<const Json*> targets;
  for (const char* keyword : kReferences) {
    if (find_key(schema, keyword) == nullptr) continue;
    AERIE_ASSIGN_OR_RETURN(const Json* target, resolve(schema, keyword));
    const bool plain = std::string_view(keyword) == "$ref";
    if (!plain) {
      AERIE_ASSIGN_OR_RETURN(target, resolve_dynamic(schema, keyword, *target));
    }
    targets.push_back(target);
    if (plain && refers_alone(schema)) break;
  }
  return targets;
}

// The outermost of the identifiers that led there decides, and every way begins at the root's.
Expected<const Json*> SchemaDocument::resolve_dynamic(const Json& schema, const char* keyword,
                                                      const Json& target) const {
  std::string name;
  if (std::string_view(keyword) == "$recursiveRef") {
    const Json* anchor = find_key(target, "$recursiveAnchor");
    if (anchor == nullptr || !anchor->is_boolean() || !anchor->get<bool>()) return &target;
  } else {
    const auto& ref = find_key(schema, keyword)->get_ref<const std::string&>();
    const size_t hash = ref.find('#');
    if (hash != std::string::npos) name = ref.substr(hash + 1);
    const Json* anchor = find_key(target, "$dynamicAnchor");
    if (name.empty() || anchor == nullptr || *anchor != name) return &target;
  }
  const auto& anchors = dynamic_.at(name);
  const Json* outermost = nullptr;
  for (const Json* one : anchors) {
    const bool first = anchors.size() == 1 || outermost_.contains(one);
    if (first && outermost == nullptr) outermost = one;
  }
  if (outermost != nullptr) return outermost;
  return error(StatusCode::kUnsupported, schema, keyword,
               "what it names depends on the way that leads here");
}

Expected<const Json*> SchemaDocument::resolve(const Json& schema, const char* keyword) const {
  const Json* value = find_key(schema, keyword);
  if (!value->is_string()) {
    return error(StatusCode::kInvalidArgument, schema, keyword, "a string is wanted");
  }
  const auto& ref = value->get_ref<const std::string&>();
  if (is_own(schema)) return at_pointer(schema, root(), std::string_view(ref).substr(1));
  const auto base = base_of_.find(&schema);
  const std::string uri = join_uri(bases_[base == base_of_.end() ? 0 : base->second], ref);
  const size_t hash = std::min(uri.find('#'), uri.size());
  const std::string_view fragment = std::string_view(uri).substr(std::min(hash + 1, uri.size()));
  const bool is_pointer = fragment.empty() || fragment.starts_with('/');
  const auto named = named_.find(is_pointer ? uri.substr(0, hash) : uri);
  if (named == named_.end() || named->second == nullptr) {
    if (is_pointer) {
      return error(StatusCode::kUnsupported, schema, keyword,
                   fmt::format("'{}' is outside of the schema; references within it ('#/...') are "
                               "supported",
                               ref));
    }
    return error(StatusCode::kInvalidArgument, schema, keyword,
                 fmt::format("there is no anchor '{}', or more than one", fragment));
  }
  if (!is_pointer) return named->second;
  auto target = at_pointer(schema, *named->second, fragment);
  // Where an identifier has begun another schema, many mean the whole document all the same.
  if (!target.ok() && named->second != &root()) return at_pointer(schema, root(), fragment);
  return target;
}

Expected<const Json*> SchemaDocument::at_pointer(const Json& schema, const Json& from,
                                                 std::string_view pointer) const {
  const Json* at = &from;
  const std::string whole(pointer);
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string key = unescaped(pointer.substr(0, end));
    pointer.remove_prefix(end);
    const Json* next = nullptr;
    if (at->is_object()) {
      next = find_key(*at, key);
    } else if (at->is_array() && !key.empty() && key.size() < 8 &&
               key.find_first_not_of("0123456789") == std::string::npos) {
      const auto place = static_cast<size_t>(std::stoi(key));
      if (place < at->size()) next = &(*at)[place];
    }
    if (next == nullptr) {
      return error(StatusCode::kInvalidArgument, schema, "$ref",
                   fmt::format("there is nothing at '#{}'", whole));
    }
    at = next;
  }
  return at;
}

bool SchemaDocument::is_annotation(std::string_view keyword) {
  static constexpr std::array kAnnotations = {
      "$schema",     "$id",       "$anchor",       "$dynamicAnchor",  "$comment", "$defs",
      "definitions", "title",     "description",   "default",         "examples", "deprecated",
      "readOnly",    "writeOnly", "contentSchema", "$recursiveAnchor"};
  return keyword.starts_with("x-") ||
         std::find(kAnnotations.begin(), kAnnotations.end(), keyword) != kAnnotations.end();
}

}  // namespace aerie::grammar
