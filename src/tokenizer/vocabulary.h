// The tokens of a model: their names, what they stand for, their kinds, and the ids with a role.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/name_table.h"

namespace aerie {

// tokenizer.ggml.token_type; SentencePiece has the same numbers.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Strings one after the other in one piece of memory.
class StringTable {
 public:
  void add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(bytes_.size());
  }
  std::string_view operator[](size_t index) const {
    return std::string_view(bytes_).substr(ends_[index], ends_[index + 1] - ends_[index]);
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_ = {0};
};

// Ids with a role, as a file gives them, unchecked.
struct TokenRoles {
  std::optional<int64_t> bos, eos, eot, eom, unk, pad;
  std::vector<int64_t> ends;  // more ids that end a reply
  bool add_bos = false;
  bool add_eos = false;
};

// What file formats call the things that messages are about.
struct VocabularyKeys {
  std::string tokens = "tokenizer.ggml.tokens";
  std::string types = "tokenizer.ggml.token_type";
  std::string role_prefix = "tokenizer.ggml.";  // + "bos" + role_suffix
  std::string role_suffix = "_token_id";
};

// Built once, then immutable: safe to share between threads. Moving keeps views into it valid.
class Vocabulary {
 public:
  // Adds the next id. kInvalidData for a type that is not defined, or too many tokens.
  Status add(std::string_view name, std::string_view piece, int64_t type,
             const VocabularyKeys& keys);
  // After the last add(). kInvalidData for a name that is there twice (an empty one may be), and
  // roles outside of the vocabulary.
  Status finish(const TokenRoles& roles, const VocabularyKeys& keys);

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  std::string_view name(int32_t id) const { return (*names_)[static_cast<size_t>(id)]; }
  std::string_view piece(int32_t id) const { return (*pieces_)[static_cast<size_t>(id)]; }
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  bool is_control(int32_t id) const {
    return type(id) == TokenType::kControl || type(id) == TokenType::kUnknown;
  }
  bool is_end(int32_t id) const { return ends_[static_cast<size_t>(id)]; }
  // -1 if there is none.
  int32_t find(std::string_view name) const;
  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }
  int32_t eot() const { return eot_; }
  int32_t eom() const { return eom_; }
  int32_t unk() const { return unk_; }
  int32_t pad() const { return pad_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }

 private:
  Status index_names(const VocabularyKeys& keys);
  Status read_roles(const TokenRoles& roles, const VocabularyKeys& keys);
  void collect_ends(const TokenRoles& roles);

  // On the heap, so that by_name_ stays valid when the object moves.
  std::unique_ptr<StringTable> names_ = std::make_unique<StringTable>();
  std::unique_ptr<StringTable> pieces_ = std::make_unique<StringTable>();
  NameTable by_name_;  // views into names_
  std::vector<TokenType> types_;
  std::vector<bool> ends_;
  int32_t bos_ = -1, eos_ = -1, eot_ = -1, eom_ = -1, unk_ = -1, pad_ = -1;
  bool add_bos_ = false, add_eos_ = false;
};

// "<0x0A>" as 10; -1 for a name of another form.
int byte_of_name(std::string_view name);
// 10 as "<0x0A>".
std::string name_of_byte(uint8_t byte);

// `text` with every U+2581, SentencePiece's sign for a space, made a space.
std::string unescaped_spaces(std::string_view text);

}  // namespace aerie
