#include "tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <limits>

#include "base/errors.h"
#include "format/text.h"

namespace aerie {
namespace {

// Control tokens that end a reply whatever the metadata says: files often name only one of them as
// EOS, and a model that closes its turn with another would never stop.
constexpr std::string_view kEndNames[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",  // DeepSeek's
};

// In OpenAI's "harmony" format this one ends a message, of which a reply has several; the name of
// the other tells the format.
constexpr std::string_view kMessageEnd = "<|end|>";
constexpr std::string_view kHarmonySign = "<|channel|>";

// A hostile name of a megabyte has no place in a message.
constexpr size_t kShownBytes = 40;

}  // namespace

Status Vocabulary::add(std::string_view name, std::string_view piece, int64_t type,
                       const VocabularyKeys& keys) {
  if (types_.size() + 1 >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return invalid_data(fmt::format("{} has more entries than ids can count", keys.tokens));
  }
  if (type < 1 || type > 6) {
    return invalid_data(
        fmt::format("{} of token {} is {}; 1 to 6 are defined", keys.types, types_.size(), type));
  }
  names_->add(name);
  pieces_->add(piece);
  types_.push_back(static_cast<TokenType>(type));
  return {};
}

Status Vocabulary::finish(const TokenRoles& roles, const VocabularyKeys& keys) {
  if (types_.empty()) return invalid_data(fmt::format("{} is empty", keys.tokens));
  AERIE_RETURN_IF_ERROR(index_names(keys));
  AERIE_RETURN_IF_ERROR(read_roles(roles, keys));
  collect_ends(roles);
  return {};
}

Status Vocabulary::index_names(const VocabularyKeys& keys) {
  by_name_.reserve(types_.size());
  for (int32_t id = 0; id < size(); ++id) {
    if (name(id).empty()) continue;  // an id that no token has
    if (!by_name_.add(name(id), id)) {
      return invalid_data(fmt::format("{} has '{}' twice, at {} and {}", keys.tokens,
                                      printable(name(id), kShownBytes), find(name(id)), id));
    }
  }
  return {};
}

Status Vocabulary::read_roles(const TokenRoles& roles, const VocabularyKeys& keys) {
  struct Role {
    const char* name;
    const std::optional<int64_t>& id;
    int32_t& out;
  };
  const Role all[] = {{"bos", roles.bos, bos_},     {"eos", roles.eos, eos_},
                      {"eot", roles.eot, eot_},     {"eom", roles.eom, eom_},
                      {"unknown", roles.unk, unk_}, {"padding", roles.pad, pad_}};
  for (const Role& role : all) {
    if (!role.id) continue;
    if (*role.id < 0 || *role.id >= size()) {
      return invalid_data(fmt::format("{}{}{} is {}, and there are {} tokens", keys.role_prefix,
                                      role.name, keys.role_suffix, *role.id, size()));
    }
    role.out = static_cast<int32_t>(*role.id);
  }
  add_bos_ = roles.add_bos;
  add_eos_ = roles.add_eos;
  if ((add_bos_ && bos_ < 0) || (add_eos_ && eos_ < 0)) {
    const char* role = add_bos_ && bos_ < 0 ? "bos" : "eos";
    return invalid_data(fmt::format("{0}add_{1}_token is true, but there is no {0}{1}{2}",
                                    keys.role_prefix, role, keys.role_suffix));
  }
  return {};
}

void Vocabulary::collect_ends(const TokenRoles& roles) {
  ends_.assign(types_.size(), false);
  for (const int32_t id : {eos_, eot_, eom_}) {
    if (id >= 0) ends_[static_cast<size_t>(id)] = true;
  }
  for (const int64_t id : roles.ends) {
    if (id >= 0 && id < size()) ends_[static_cast<size_t>(id)] = true;
  }
  for (const std::string_view end : kEndNames) {
    const int32_t id = find(end);
    if (id >= 0 && is_control(id)) ends_[static_cast<size_t>(id)] = true;
  }
  const int32_t message_end = find(kMessageEnd);
  if (message_end >= 0 && find(kHarmonySign) >= 0) ends_[static_cast<size_t>(message_end)] = false;
}

int32_t Vocabulary::find(std::string_view name) const {
  return by_name_.find(name);
}

int byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  int byte = 0;
  for (const char c : name.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'A' && c <= 'F')) return -1;
    byte = byte * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return byte;
}

std::string name_of_byte(uint8_t byte) {
  return fmt::format("<0x{:02X}>", byte);
}

std::string unescaped_spaces(std::string_view text) {
  constexpr std::string_view kSign = "\u2581";
  std::string result;
  result.reserve(text.size());
  size_t done = 0;
  for (size_t at = text.find(kSign); at != text.npos; at = text.find(kSign, done)) {
    result += text.substr(done, at - done);
    result += ' ';
    done = at + kSign.size();
  }
  return result += text.substr(done);
}

}  // namespace aerie
