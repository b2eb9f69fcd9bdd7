// Vocabularies and goldens that the tokenizer's tests share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/load/gguf_metadata.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace aerie::test {

using BpeData = GgufTokenizerMetadata;

inline const std::filesystem::path kShared = "../shared/data";
inline const std::filesystem::path kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

// The 256 bytes as ids 0 to 255.
BpeData byte_vocabulary();
// Adds a merge and the token that it makes, whose id is returned; parts are spelled as text.
int32_t add_merge(BpeData& data, std::string_view left, std::string_view right);
int32_t add_token(BpeData& data, std::string_view name, TokenType type);
// "Ġ" and so on for bytes.
std::string spelled(std::string_view bytes);

// GPT-2's, from vocab.json and merges.txt.
BpeData gpt2_data();
// Null, failing the test, if it is refused.
std::unique_ptr<Tokenizer> create(const BpeData& data);
// Null if the file is not there.
std::unique_ptr<Tokenizer> load_gguf(const std::filesystem::path& path);

// One JSON value for each line. Fails the test if there are none.
std::vector<nlohmann::json> read_rows(const std::filesystem::path& path);
std::string read_file(const std::filesystem::path& path);
// The books of the shared data, about 5 MB of English.
std::string english();

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text,
                            EncodeOptions options = {false, false});
// The pieces, one after the other.
std::string decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids);
// The text that they are, which is valid UTF-8.
std::string decode_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids);
// `text` without the bytes that the vocabulary lacks.
std::string without_missing(const Tokenizer& tokenizer, std::string_view text);

// Bytes in several moods: uniform, ASCII, well-formed UTF-8, runs of one byte.
std::string random_bytes(std::mt19937& random, size_t length);

}  // namespace aerie::test

// Data that comes with the working copy, not with the repository.
#define AERIE_SKIP_WITHOUT(path)                                                      \
  if (!std::filesystem::exists(path)) {                                               \
    GTEST_SKIP() << (path).string() << " is not here; see the README for getting it"; \
  }
