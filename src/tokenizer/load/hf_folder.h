// The files of a Hugging Face folder that say something about its tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/vocabulary.h"

namespace aerie {

// tokenizer_config.json, special_tokens_map.json, added_tokens.json, generation_config.json and
// config.json, of which any may be absent.
struct HfSettings {
  std::string folder;
  std::string tokenizer_class;
  std::optional<std::string> bos, eos, unk, pad;  // names of tokens
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  std::vector<AddedToken> added;  // with their ids
  std::vector<int64_t> eos_ids;   // of generation_config.json and config.json
  std::optional<int64_t> bos_id;  // of generation_config.json and config.json
};

// kInvalidData, naming file and key, for what is broken.
Expected<HfSettings> read_hf_settings(const std::string& folder);

// The roles that names and ids of the settings give, for a vocabulary of `size` tokens whose names
// `find` knows (-1 for others). Names and ids that are not there are left out.
TokenRoles hf_roles(const HfSettings& settings,
                    const std::function<int32_t(std::string_view)>& find, int64_t size);

// The vocabulary's names for messages about `file`.
VocabularyKeys hf_keys(const std::string& file);

// A list of tokens by id, with holes.
class TokenList {
 public:
  // kInvalidData if the id is taken by another name or far beyond the number of tokens; `what`
  // names the list for the message.
  Status set(int64_t id, std::string_view name, TokenType type, const std::string& what);
  struct Token {
    std::string name;
    TokenType type = TokenType::kUnused;
    bool in_model = false;
    bool present = false;
  };
  std::vector<Token>& tokens() { return tokens_; }
  const std::vector<Token>& tokens() const { return tokens_; }
  // Requires that ids were announced: the most that set() may be asked for, by a file's size.
  void expect(size_t count) { expected_ += count; }

 private:
  std::vector<Token> tokens_;
  size_t expected_ = 0;
};

// One reader for each kind of file. Errors name the file.
Expected<PipelineParts> parse_tokenizer_json(const Json& json, const std::string& name,
                                             const HfSettings& settings);
Expected<PipelineParts> parse_sentencepiece_model(std::string_view bytes, const std::string& name,
                                                  const HfSettings& settings);
Expected<PipelineParts> read_tokenizer_json(const std::string& path, const HfSettings& settings);
Expected<PipelineParts> read_sentencepiece_model(const std::string& path,
                                                 const HfSettings& settings);
Expected<PipelineParts> read_vocab_and_merges(const std::string& vocab, const std::string& merges,
                                              const HfSettings& settings);

// The same of bytes in memory, for tests and fuzzing; `name` is for messages.
Expected<std::unique_ptr<Tokenizer>> tokenizer_from_json(std::string_view bytes,
                                                         const std::string& name,
                                                         const HfSettings& settings);
Expected<std::unique_ptr<Tokenizer>> tokenizer_from_sentencepiece(std::string_view bytes,
                                                                  const std::string& name,
                                                                  const HfSettings& settings);

}  // namespace aerie
