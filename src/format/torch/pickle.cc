#include "format/torch/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "base/errors.h"
#include "format/byte_reader.h"
#include "format/text.h"
#include "format/torch/torch_types.h"

namespace aerie {
namespace {

Status invalid(std::string_view why) {
  return invalid_data(std::string(why));
}

}  // namespace

std::span<const PickleId> Pickle::items(PickleId id) const {
  const PickleValue& value = values_[id];
  switch (value.kind) {
    case PickleKind::kList:
    case PickleKind::kTuple:
    case PickleKind::kDict:
    case PickleKind::kCall:
    case PickleKind::kPersistent:
      return containers_[value.container];
    default:
      return {};
  }
}

// The machine. Every instruction adds at most one value and copies no container, so that memory
// follows the bytes that are read.
class Unpickler {
 public:
  explicit Unpickler(std::span<const std::byte> bytes) : reader_(bytes) {}

  Status run() {
    while (!stopped_) {
      const size_t at = reader_.offset();
      if (Status status = step(); !status.ok())
        return status.with_context(fmt::format("byte {}", at));
    }
    return {};
  }
  Pickle take() { return std::move(out_); }

 private:
  struct Instruction {
    Status (Unpickler::*run)(int argument) = nullptr;
    int argument = 0;
  };
  using Table = std::array<Instruction, 256>;
  static Table make_table();

  Status step();
  Status stop(int);
  Status protocol(int);
  Status frame(int);
  Status constant(int which);
  Status integer(int bytes);
  Status long_integer(int length_bytes);
  Status number(int);
  Status text(int length_bytes);
  Status raw(int length_bytes);
  Status old_text(int length_bytes);
  Status mark(int);
  Status pop(int);
  Status pop_mark(int);
  Status duplicate(int);
  Status empty(int kind);
  Status from_mark(int kind);
  Status tuple(int count);
  Status append(int);
  Status append_all(int);
  Status set(int);
  Status set_all(int);
  Status put(int bytes);
  Status memoize(int);
  Status get(int bytes);
  Status global(int);
  Status stack_global(int);
  Status call(int);
  Status build(int);
  Status persistent(int);

  // Adds a value and leaves it on the stack.
  PickleValue& push(PickleKind kind);
  void push_container(PickleKind kind, std::vector<PickleId> items);
  // How much of the stack lies above the last mark.
  size_t height() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Status need(size_t count) const {
    return height() >= count ? Status() : invalid("the stack has too few values");
  }
  Expected<PickleId> take_top();
  Expected<std::vector<PickleId>> take_to_mark();
  Expected<std::vector<PickleId>*> top_container(PickleKind kind);
  Expected<uint64_t> length(int bytes);
  Status push_global(std::string_view module, std::string_view name);

  ByteReader reader_;
  Pickle out_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  std::map<uint32_t, PickleId> memo_;
  bool stopped_ = false;
};

Unpickler::Table Unpickler::make_table() {
  using U = Unpickler;
  constexpr auto kList = static_cast<int>(PickleKind::kList);
  constexpr auto kTuple = static_cast<int>(PickleKind::kTuple);
  constexpr auto kDict = static_cast<int>(PickleKind::kDict);
  Table table;
  table['.'] = {&U::stop};
  table[0x80] = {&U::protocol};
  table[0x95] = {&U::frame};
  table['N'] = {&U::constant, -1};
  table[0x88] = {&U::constant, 1};
  table[0x89] = {&U::constant, 0};
  table['K'] = {&U::integer, 1};
  table['M'] = {&U::integer, 2};
  table['J'] = {&U::integer, 4};
  table[0x8A] = {&U::long_integer, 1};
  table[0x8B] = {&U::long_integer, 4};
  table['G'] = {&U::number};
  table[0x8C] = {&U::text, 1};
  table['X'] = {&U::text, 4};
  table[0x8D] = {&U::text, 8};
  table['C'] = {&U::raw, 1};
  table['B'] = {&U::raw, 4};
  table[0x8E] = {&U::raw, 8};
  table['U'] = {&U::old_text, 1};
  table['T'] = {&U::old_text, 4};
  table['('] = {&U::mark};
  table['0'] = {&U::pop};
  table['1'] = {&U::pop_mark};
  table['2'] = {&U::duplicate};
  table[']'] = {&U::empty, kList};
  table[')'] = {&U::empty, kTuple};
  table['}'] = {&U::empty, kDict};
  table['l'] = {&U::from_mark, kList};
  table['t'] = {&U::from_mark, kTuple};
  table['d'] = {&U::from_mark, kDict};
  table[0x85] = {&U::tuple, 1};
  table[0x86] = {&U::tuple, 2};
  table[0x87] = {&U::tuple, 3};
  table['a'] = {&U::append};
  table['e'] = {&U::append_all};
  table['s'] = {&U::set};
  table['u'] = {&U::set_all};
  table['q'] = {&U::put, 1};
  table['r'] = {&U::put, 4};
  table[0x94] = {&U::memoize};
  table['h'] = {&U::get, 1};
  table['j'] = {&U::get, 4};
  table['c'] = {&U::global};
  table[0x93] = {&U::stack_global};
  table['R'] = {&U::call};
  table['b'] = {&U::build};
  table['Q'] = {&U::persistent};
  return table;
}

Status Unpickler::step() {
  static const Table kTable = make_table();
  uint8_t code = 0;
  AERIE_RETURN_IF_ERROR(reader_.read(code));
  const Instruction& instruction = kTable[code];
  if (instruction.run == nullptr) {
    return not_supported("the instruction 0x{:02x} is not one that files of tensors need", code);
  }
  return (this->*instruction.run)(instruction.argument);
}

PickleValue& Unpickler::push(PickleKind kind) {
  stack_.push_back(static_cast<PickleId>(out_.values_.size()));
  PickleValue& value = out_.values_.emplace_back();
  value.kind = kind;
  return value;
}

void Unpickler::push_container(PickleKind kind, std::vector<PickleId> items) {
  push(kind).container = static_cast<uint32_t>(out_.containers_.size());
  out_.containers_.push_back(std::move(items));
}

Expected<PickleId> Unpickler::take_top() {
  AERIE_RETURN_IF_ERROR(need(1));
  const PickleId top = stack_.back();
  stack_.pop_back();
  return top;
}

Expected<std::vector<PickleId>> Unpickler::take_to_mark() {
  if (marks_.empty()) return invalid("there is no mark on the stack");
  const auto from = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
  std::vector<PickleId> items(from, stack_.end());
  stack_.erase(from, stack_.end());
  marks_.pop_back();
  return items;
}

Expected<std::vector<PickleId>*> Unpickler::top_container(PickleKind kind) {
  AERIE_RETURN_IF_ERROR(need(1));
  const PickleValue& value = out_.values_[stack_.back()];
  if (value.kind != kind) {
    return invalid(kind == PickleKind::kDict ? "entries are set of what is no dict"
                                             : "items are added to what is no list");
  }
  return &out_.containers_[value.container];
}

Expected<uint64_t> Unpickler::length(int bytes) {
  if (bytes == 1) {
    uint8_t value = 0;
    AERIE_RETURN_IF_ERROR(reader_.read(value));
    return uint64_t{value};
  }
  if (bytes == 4) {
    uint32_t value = 0;
    AERIE_RETURN_IF_ERROR(reader_.read(value));
    return uint64_t{value};
  }
  uint64_t value = 0;
  AERIE_RETURN_IF_ERROR(reader_.read(value));
  return value;
}

Status Unpickler::stop(int) {
  AERIE_ASSIGN_OR_RETURN(out_.root_, take_top());
  if (!stack_.empty() || !marks_.empty()) return invalid("values are left on the stack at the end");
  out_.bytes_ = reader_.offset();
  stopped_ = true;
  return {};
}

Status Unpickler::protocol(int) {
  uint8_t version = 0;
  AERIE_RETURN_IF_ERROR(reader_.read(version));
  if (version <= 5) return {};
  return not_supported("protocol {}; 2 to 5 are read", version);
}

Status Unpickler::frame(int) {
  uint64_t length = 0;
  AERIE_RETURN_IF_ERROR(reader_.read(length));
  return reader_.require(length);
}

Status Unpickler::constant(int which) {
  push(which < 0 ? PickleKind::kNone : PickleKind::kBool).integer = std::max(which, 0);
  return {};
}

Status Unpickler::integer(int bytes) {
  int64_t value = 0;
  if (bytes == 1) {
    uint8_t stored = 0;
    AERIE_RETURN_IF_ERROR(reader_.read(stored));
    value = stored;
  } else if (bytes == 2) {
    uint16_t stored = 0;
    AERIE_RETURN_IF_ERROR(reader_.read(stored));
    value = stored;
  } else {
    int32_t stored = 0;
    AERIE_RETURN_IF_ERROR(reader_.read(stored));
    value = stored;
  }
  push(PickleKind::kInteger).integer = value;
  return {};
}

// Two's complement of as many bytes as it needs.
Status Unpickler::long_integer(int length_bytes) {
  AERIE_ASSIGN_OR_RETURN(const uint64_t count, length(length_bytes));
  if (count > sizeof(int64_t)) return not_supported("an integer of more than 64 bits");
  std::string_view bytes;
  AERIE_RETURN_IF_ERROR(reader_.read_text(count, bytes));
  uint64_t value = count > 0 && (static_cast<uint8_t>(bytes.back()) & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  push(PickleKind::kInteger).integer = static_cast<int64_t>(value);
  return {};
}

// The one number that is stored with its highest byte first.
Status Unpickler::number(int) {
  std::string_view bytes;
  AERIE_RETURN_IF_ERROR(reader_.read_text(sizeof(double), bytes));
  uint64_t bits = 0;
  for (const char byte : bytes) bits = bits << 8 | static_cast<uint8_t>(byte);
  push(PickleKind::kFloat).number = std::bit_cast<double>(bits);
  return {};
}

Status Unpickler::text(int length_bytes) {
  AERIE_ASSIGN_OR_RETURN(const uint64_t count, length(length_bytes));
  std::string_view text;
  AERIE_RETURN_IF_ERROR(reader_.read_text(count, text));
  if (!is_valid_utf8(text)) return invalid("a string is not UTF-8");
  push(PickleKind::kString).text = text;
  return {};
}

Status Unpickler::raw(int length_bytes) {
  AERIE_ASSIGN_OR_RETURN(const uint64_t count, length(length_bytes));
  std::string_view text;
  AERIE_RETURN_IF_ERROR(reader_.read_text(count, text));
  push(PickleKind::kBytes).text = text;
  return {};
}

// Strings of Python 2, which are text or bytes as it comes.
Status Unpickler::old_text(int length_bytes) {
  AERIE_RETURN_IF_ERROR(raw(length_bytes));
  PickleValue& value = out_.values_[stack_.back()];
  if (is_valid_utf8(value.text)) value.kind = PickleKind::kString;
  return {};
}

Status Unpickler::mark(int) {
  marks_.push_back(stack_.size());
  return {};
}

Status Unpickler::pop(int) {
  return take_top().status();
}

Status Unpickler::pop_mark(int) {
  return take_to_mark().status();
}

Status Unpickler::duplicate(int) {
  AERIE_RETURN_IF_ERROR(need(1));
  stack_.push_back(stack_.back());
  return {};
}

Status Unpickler::empty(int kind) {
  push_container(static_cast<PickleKind>(kind), {});
  return {};
}

Status Unpickler::from_mark(int kind) {
  AERIE_ASSIGN_OR_RETURN(std::vector<PickleId> items, take_to_mark());
  if (static_cast<PickleKind>(kind) == PickleKind::kDict && items.size() % 2 != 0) {
    return invalid("a key has no value");
  }
  push_container(static_cast<PickleKind>(kind), std::move(items));
  return {};
}

Status Unpickler::tuple(int count) {
  const auto size = static_cast<size_t>(count);
  AERIE_RETURN_IF_ERROR(need(size));
  const auto from = stack_.end() - count;
  std::vector<PickleId> items(from, stack_.end());
  stack_.erase(from, stack_.end());
  push_container(PickleKind::kTuple, std::move(items));
  return {};
}

Status Unpickler::append(int) {
  AERIE_ASSIGN_OR_RETURN(const PickleId item, take_top());
  AERIE_ASSIGN_OR_RETURN(std::vector<PickleId>* const list, top_container(PickleKind::kList));
  list->push_back(item);
  return {};
}

Status Unpickler::append_all(int) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<PickleId> items, take_to_mark());
  AERIE_ASSIGN_OR_RETURN(std::vector<PickleId>* const list, top_container(PickleKind::kList));
  list->insert(list->end(), items.begin(), items.end());
  return {};
}

Status Unpickler::set(int) {
  AERIE_ASSIGN_OR_RETURN(const PickleId value, take_top());
  AERIE_ASSIGN_OR_RETURN(const PickleId key, take_top());
  AERIE_ASSIGN_OR_RETURN(std::vector<PickleId>* const dict, top_container(PickleKind::kDict));
  dict->insert(dict->end(), {key, value});
  return {};
}

Status Unpickler::set_all(int) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<PickleId> items, take_to_mark());
  AERIE_ASSIGN_OR_RETURN(std::vector<PickleId>* const dict, top_container(PickleKind::kDict));
  if (items.size() % 2 != 0) return invalid("a key has no value");
  dict->insert(dict->end(), items.begin(), items.end());
  return {};
}

Status Unpickler::put(int bytes) {
  AERIE_ASSIGN_OR_RETURN(const uint64_t index, length(bytes));
  AERIE_RETURN_IF_ERROR(need(1));
  memo_[static_cast<uint32_t>(index)] = stack_.back();
  return {};
}

Status Unpickler::memoize(int) {
  AERIE_RETURN_IF_ERROR(need(1));
  memo_[static_cast<uint32_t>(memo_.size())] = stack_.back();
  return {};
}

Status Unpickler::get(int bytes) {
  AERIE_ASSIGN_OR_RETURN(const uint64_t index, length(bytes));
  const auto entry = memo_.find(static_cast<uint32_t>(index));
  if (entry == memo_.end()) return invalid(fmt::format("nothing was kept under {}", index));
  stack_.push_back(entry->second);
  return {};
}

Status Unpickler::push_global(std::string_view module, std::string_view name) {
  const std::string full = fmt::format("{}.{}", module, name);
  const TorchGlobal* known = find_torch_global(full);
  if (known != nullptr) {
    push(PickleKind::kGlobal).text = known->name;
    return {};
  }
  if (module == "torch" && name.ends_with("Storage")) {
    return not_supported("tensors of the type '{}' are not supported", printable(full));
  }
  return not_supported(
      "would run code: it names '{}', and only what tensors and dicts are made of is read (save a "
      "state_dict() rather than an object)",
      printable(full));
}

Status Unpickler::global(int) {
  std::array<std::string_view, 2> lines;
  for (std::string_view& line : lines) {
    std::string_view rest;
    ByteReader ahead = reader_;
    AERIE_RETURN_IF_ERROR(ahead.read_text(ahead.remaining(), rest));
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return invalid("the name of a global does not end");
    AERIE_RETURN_IF_ERROR(reader_.read_text(end, line));
    AERIE_RETURN_IF_ERROR(reader_.skip(1));
  }
  return push_global(lines[0], lines[1]);
}

Status Unpickler::stack_global(int) {
  AERIE_ASSIGN_OR_RETURN(const PickleId name, take_top());
  AERIE_ASSIGN_OR_RETURN(const PickleId module, take_top());
  for (const PickleId id : {module, name}) {
    if (out_.at(id).kind != PickleKind::kString) return invalid("a global's name is no string");
  }
  return push_global(out_.at(module).text, out_.at(name).text);
}

Status Unpickler::call(int) {
  AERIE_ASSIGN_OR_RETURN(const PickleId arguments, take_top());
  AERIE_ASSIGN_OR_RETURN(const PickleId callee, take_top());
  const PickleValue function = out_.at(callee);
  if (function.kind != PickleKind::kGlobal || out_.at(arguments).kind != PickleKind::kTuple) {
    return invalid("something is called that is no function, or without a tuple of arguments");
  }
  const std::span<const PickleId> items = out_.items(arguments);
  switch (find_torch_global(function.text)->role) {
    case TorchRole::kCall: {
      PickleValue& made = push(PickleKind::kCall);
      made.text = function.text;
      made.container = out_.at(arguments).container;  // a tuple does not change
      return {};
    }
    case TorchRole::kDict:
      if (!items.empty()) {
        return not_supported("an OrderedDict is made of arguments, as Python 2 did it");
      }
      push_container(PickleKind::kDict, {});
      return {};
    case TorchRole::kSize:
      if (items.size() != 1 || out_.at(items[0]).kind != PickleKind::kTuple) {
        return invalid("a torch.Size is made of something else than a tuple");
      }
      stack_.push_back(items[0]);
      return {};
    case TorchRole::kType:
      break;
  }
  return not_supported("would run code: it calls '{}'", printable(function.text));
}

// The attributes of an object, such as the versions that a state dict carries. Values have none
// here, and tensors need none.
Status Unpickler::build(int) {
  AERIE_RETURN_IF_ERROR(need(2));
  AERIE_RETURN_IF_ERROR(take_top().status());
  const PickleKind kind = out_.at(stack_.back()).kind;
  if (kind == PickleKind::kDict || kind == PickleKind::kCall) return {};
  return invalid("attributes are set of what has none");
}

Status Unpickler::persistent(int) {
  AERIE_ASSIGN_OR_RETURN(const PickleId id, take_top());
  push_container(PickleKind::kPersistent, {id});
  return {};
}

Expected<Pickle> Pickle::parse(std::span<const std::byte> bytes, const std::string& name) {
  Unpickler machine(bytes.first(std::min(bytes.size(), kMaxPickleBytes)));
  Status status = machine.run();
  if (!status.ok() && bytes.size() > kMaxPickleBytes) {
    status = {status.code(), fmt::format("{}; pickles of up to {} bytes are read", status.message(),
                                         kMaxPickleBytes)};
  }
  if (!status.ok()) return status.with_context(name);
  return machine.take();
}

}  // namespace aerie
