#include "jinja/values/runtime.h"

#include <fmt/format.h>

#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

constexpr size_t kIndexedFrom = 9;  // entries; fewer are looked through

Status over(const char* what, size_t limit) {
  return {StatusCode::kResourceExhausted,
          fmt::format("the template needs more than {} {}", limit, what)};
}

void index_from(Dict& dict, size_t first) {
  for (size_t i = first; i < dict.entries.size(); ++i) {
    const Value& key = dict.entries[i].first;
    if (key.is_text()) dict.index.emplace(key.view(), i);
  }
}

}  // namespace

Status fail(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}

size_t Scope::place(int name) const {
  if (!index_.empty()) {
    const auto found = index_.find(name);
    return found == index_.end() ? variables_.size() : found->second;
  }
  size_t place = 0;
  while (place < variables_.size() && variables_[place].first != name) ++place;
  return place;
}

const Value* Scope::find(int name) const {
  const size_t found = place(name);
  return found < variables_.size() ? &variables_[found].second : nullptr;
}

void Scope::set(int name, const Value& value) {
  if (const size_t found = place(name); found < variables_.size()) {
    variables_[found].second = value;
    return;
  }
  variables_.emplace_back(name, value);
  if (variables_.size() < kIndexedFrom) return;
  const size_t first = index_.empty() ? 0 : variables_.size() - 1;
  for (size_t i = first; i < variables_.size(); ++i) index_.emplace(variables_[i].first, i);
}

void Scope::clear() {
  variables_.clear();
  index_.clear();
}

std::tm Runtime::now() const {
  if (now_) return *now_;
  const std::time_t time = std::time(nullptr);
  std::tm local{};
  localtime_r(&time, &local);
  return local;
}

Status Runtime::exhausted() const {
  if (steps_ > limits_.steps) return over("steps", limits_.steps);
  return over("bytes for its values", limits_.memory_bytes);
}

Status Runtime::claim(Int count, size_t bytes) const {
  if (count <= 0 || bytes == 0) return {};
  if (count <= static_cast<Int>(memory_left() / bytes)) return {};
  return over("bytes for its values", limits_.memory_bytes);
}

Status Runtime::too_deep() const {
  return over("levels of evaluation (macros that call macros, expressions inside expressions)",
              static_cast<size_t>(limits_.depth));
}

Status Runtime::too_nested() const {
  return over("levels of lists and dicts inside each other", static_cast<size_t>(limits_.nesting));
}

Value Runtime::text(std::string bytes) {
  steps_ += bytes.size() / 16;
  memory_ += sizeof(Text) + bytes.size();
  return Value::of(&texts_.emplace_back(std::move(bytes)));
}

Value Runtime::borrow(std::string_view bytes) {
  steps_ += bytes.size() / 16;  // to see whether they are ASCII
  memory_ += sizeof(Text);
  return Value::of(&texts_.emplace_back(Text::Borrow{}, bytes));
}

Value Runtime::safe_text(std::string bytes) {
  Value value = text(std::move(bytes));
  texts_.back().safe = true;
  return value;
}

Sequence* Runtime::sequence(Sequence::Flavour flavour) {
  memory_ += sizeof(Sequence);
  Sequence* result = &sequences_.emplace_back();
  result->flavour = flavour;
  return result;
}

void Runtime::push(Sequence* sequence, const Value& value) {
  memory_ += 2 * sizeof(Value);  // a vector doubles when it is full
  if (memory_ <= limits_.memory_bytes) sequence->items.push_back(value);
}

Value Runtime::pair(const Value& first, const Value& second) {
  Sequence* tuple = sequence(Sequence::Flavour::kTuple);
  push(tuple, first);
  push(tuple, second);
  return Value::of(tuple);
}

Dict* Runtime::dict() {
  memory_ += sizeof(Dict);
  return &dicts_.emplace_back();
}

Callable* Runtime::callable(Callable::What what) {
  memory_ += sizeof(Callable);
  Callable* result = &callables_.emplace_back();
  result->what = what;
  return result;
}

Loop* Runtime::loop() {
  memory_ += sizeof(Loop);
  return &loops_.emplace_back();
}

Cycler* Runtime::cycler() {
  memory_ += sizeof(Cycler);
  return &cyclers_.emplace_back();
}

Scope* Runtime::scope(Scope* parent) {
  Scope* result;
  if (free_scopes_.empty()) {
    memory_ += sizeof(Scope) + 4 * sizeof(Value);
    result = &scopes_.emplace_back();
  } else {
    result = free_scopes_.back();
    free_scopes_.pop_back();
  }
  result->parent = parent;
  return result;
}

void Runtime::release(Scope* scope) {
  if (scope->captured) return;
  scope->clear();
  free_scopes_.push_back(scope);
}

Expected<int64_t> Runtime::find(const Dict* dict, const Value& key) {
  AERIE_RETURN_IF_ERROR(check_hashable(key));
  if (key.is_text()) AERIE_RETURN_IF_ERROR(spend_text(key.view().size()));
  if (key.is_text() && dict->entries.size() >= kIndexedFrom) {
    const auto found = dict->index.find(key.view());
    return found == dict->index.end() ? int64_t{-1} : static_cast<int64_t>(found->second);
  }
  for (size_t i = 0; i < dict->entries.size(); ++i) {
    const Value& candidate = dict->entries[i].first;
    if (key.is_text()) {
      if (candidate.is_text() && candidate.view() == key.view()) return static_cast<int64_t>(i);
      continue;
    }
    AERIE_ASSIGN_OR_RETURN(const bool same, equal(*this, candidate, key));
    if (same) return static_cast<int64_t>(i);
  }
  return int64_t{-1};
}

Status Runtime::put(Dict* dict, const Value& key, const Value& value) {
  AERIE_ASSIGN_OR_RETURN(const int64_t place, find(dict, key));
  if (place >= 0) {
    dict->entries[static_cast<size_t>(place)].second = value;
    return {};
  }
  memory_ += 4 * sizeof(Value) + (key.is_text() ? 64 : 0);
  AERIE_RETURN_IF_ERROR(spend());
  dict->entries.emplace_back(key, value);
  const size_t count = dict->entries.size();
  if (count >= kIndexedFrom) index_from(*dict, count == kIndexedFrom ? 0 : count - 1);
  return {};
}

Status Runtime::erase(Dict* dict, size_t place) {
  AERIE_RETURN_IF_ERROR(spend(dict->entries.size()));
  dict->entries.erase(dict->entries.begin() + static_cast<std::ptrdiff_t>(place));
  dict->index.clear();
  if (dict->entries.size() >= kIndexedFrom) index_from(*dict, 0);
  return {};
}

Status TextBuilder::status() const {
  if (!stopped_.ok()) return stopped_;
  if (!full_) return runtime_.spend(0);
  return output_ ? over("bytes of output", runtime_.limits().output_bytes)
                 : over("bytes for its values", runtime_.limits().memory_bytes);
}

Expected<Value> TextBuilder::value() {
  AERIE_RETURN_IF_ERROR(status());
  runtime_.memory_ -= text_.size();  // text() counts it
  return runtime_.text(std::move(text_));
}

}  // namespace aerie::jinja
