// Tokenizers from Hugging Face's tokenizer.json, and from GPT-2's vocab.json and merges.txt.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "format/input_file.h"
#include "format/text.h"
#include "tokenizer/load/gguf_form.h"
#include "tokenizer/load/hf_components.h"
#include "tokenizer/load/hf_folder.h"
#include "tokenizer/pieces/bpe.h"
#include "tokenizer/pieces/byte_alphabet.h"
#include "tokenizer/pieces/unigram.h"

namespace aerie {
namespace {

using Names = std::unordered_map<std::string_view, int32_t>;

// Everything that the parts of a file say, on its way to PipelineParts.
struct Reader {
  Reader(const JsonObject& root_object, HfSettings folder_settings)
      : root(root_object), settings(std::move(folder_settings)) {}

  const JsonObject& root;
  HfSettings settings;
  TokenList list;
  Names model_names;  // of the model's vocabulary, not of added tokens
  std::vector<AddedToken> added;
  HfShape shape;
  HfPreTokenizer pre;
  HfDecoder decoder;
  HfTemplate around;
  BpeOptions bpe;
  std::vector<bool> in_model;
  std::vector<double> scores;  // of a unigram model
  std::optional<int64_t> unk;
  PipelineParts parts;
};

Status read_vocab_object(const Json& vocab, const std::string& where, Reader& reader) {
  if (!vocab.is_object()) return invalid_data("{} is not an object", where);
  reader.list.expect(vocab.size());
  for (const auto& [name, id] : vocab.items()) {
    if (!id.is_number_integer()) {
      return invalid_data("{}: the id of '{}' is not an integer", where, printable(name, 40));
    }
    if (id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX) {
      return invalid_data("{}: the id of '{}' is too large", where, printable(name, 40));
    }
    const auto value = id.get<int64_t>();
    AERIE_RETURN_IF_ERROR(reader.list.set(value, name, TokenType::kNormal, where));
    reader.list.tokens()[static_cast<size_t>(value)].in_model = true;
    reader.model_names.emplace(name, static_cast<int32_t>(value));
  }
  return {};
}

// [["<unk>", 0.0], ...]
Status read_unigram_vocab(const JsonObject& model, Reader& reader) {
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr || !vocab->is_array()) {
    return model.error(StatusCode::kInvalidData, "vocab", "is not a list");
  }
  reader.list.expect(vocab->size());
  for (const Json& entry : *vocab) {
    const bool pair =
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!pair) {
      return model.error(StatusCode::kInvalidData, "vocab",
                         "has an entry, number {}, that is not a token and its score",
                         reader.scores.size());
    }
    const auto id = static_cast<int64_t>(reader.scores.size());
    const auto& name = entry[0].get_ref<const std::string&>();
    AERIE_RETURN_IF_ERROR(reader.list.set(id, name, TokenType::kNormal, model.file()));
    reader.list.tokens()[static_cast<size_t>(id)].in_model = true;
    reader.model_names.emplace(name, static_cast<int32_t>(id));
    reader.scores.push_back(entry[1].get<double>());
  }
  return {};
}

Status add_token(const AddedToken& token, const std::string& where, Reader& reader) {
  const auto known = reader.model_names.find(token.content);
  if (known != reader.model_names.end() && known->second != token.id) {
    return invalid_data("{}: '{}' has id {}, and the vocabulary says {}", where,
                        printable(token.content, 40), token.id, known->second);
  }
  AERIE_RETURN_IF_ERROR(
      reader.list.set(token.id, token.content,
                      token.special ? TokenType::kControl : TokenType::kUserDefined, where));
  reader.added.push_back(token);
  return {};
}

Status read_added_tokens(Reader& reader) {
  const Json* list = reader.root.find("added_tokens");
  if (list == nullptr) return {};
  if (!list->is_array()) {
    return reader.root.error(StatusCode::kInvalidData, "added_tokens", "is not a list");
  }
  reader.list.expect(list->size());
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("{}: added_tokens[{}]", reader.root.file(), i);
    AERIE_ASSIGN_OR_RETURN(const JsonObject entry, JsonObject::view((*list)[i], where));
    AddedToken token;
    AERIE_ASSIGN_OR_RETURN(const std::string_view content, entry.string("content"));
    AERIE_ASSIGN_OR_RETURN(const int64_t id, entry.integer("id"));
    if (id < 0 || id > INT32_MAX) {
      return entry.error(StatusCode::kInvalidData, "id", "is not a token id");
    }
    token.content = content;
    token.id = static_cast<int32_t>(id);
    AERIE_ASSIGN_OR_RETURN(token.special, entry.boolean("special", false));
    AERIE_ASSIGN_OR_RETURN(token.single_word, entry.boolean("single_word", false));
    AERIE_ASSIGN_OR_RETURN(token.lstrip, entry.boolean("lstrip", false));
    AERIE_ASSIGN_OR_RETURN(token.rstrip, entry.boolean("rstrip", false));
    AERIE_ASSIGN_OR_RETURN(token.normalized, entry.boolean("normalized", !token.special));
    if (token.content.empty()) continue;
    AERIE_RETURN_IF_ERROR(add_token(token, where, reader));
  }
  return {};
}

// "left right" or ["left", "right"].
Expected<std::vector<std::pair<std::string_view, std::string_view>>> read_merges(
    const JsonObject& model) {
  const Json* merges = model.find("merges");
  if (merges == nullptr || !merges->is_array()) {
    return model.error(StatusCode::kInvalidData, "merges", "is not a list");
  }
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  pairs.reserve(merges->size());
  for (const Json& entry : *merges) {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      pairs.emplace_back(entry[0].get_ref<const std::string&>(),
                         entry[1].get_ref<const std::string&>());
      continue;
    }
    const std::string_view text =
        entry.is_string() ? std::string_view(entry.get_ref<const std::string&>()) : "";
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      return model.error(StatusCode::kInvalidData, "merges",
                         "has an entry, number {}, that is not two tokens", pairs.size());
    }
    pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return pairs;
}

Status read_bpe_options(const JsonObject& model, Reader& reader) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    AERIE_ASSIGN_OR_RETURN(const std::string_view text, model.string(key, ""));
    if (!text.empty()) return model.error(StatusCode::kUnsupported, key, "is not supported");
  }
  AERIE_ASSIGN_OR_RETURN(const double dropout, model.number("dropout", 0.0));
  if (dropout != 0) {
    return model.error(StatusCode::kUnsupported, "dropout", "makes tokens a matter of chance");
  }
  AERIE_ASSIGN_OR_RETURN(reader.bpe.fuse_unk, model.boolean("fuse_unk", false));
  AERIE_ASSIGN_OR_RETURN(reader.bpe.byte_fallback, model.boolean("byte_fallback", false));
  AERIE_ASSIGN_OR_RETURN(reader.bpe.ignore_merges, model.boolean("ignore_merges", false));
  reader.bpe.bytes = reader.pre.byte_level;
  reader.shape.recipe.ignore_merges = reader.bpe.ignore_merges;
  if (!model.has("unk_token")) return {};
  AERIE_ASSIGN_OR_RETURN(const std::string_view unk, model.string("unk_token"));
  const auto found = reader.model_names.find(unk);
  if (found == reader.model_names.end()) {
    return model.error(StatusCode::kInvalidData, "unk_token", "is not in the vocabulary");
  }
  reader.bpe.unk = found->second;
  reader.unk = found->second;
  return {};
}

// Marks what is neither text nor added, and makes the vocabulary.
Status make_vocabulary(const VocabularyKeys& keys, TokenRoles roles, Reader& reader) {
  auto vocabulary = std::make_unique<Vocabulary>();
  std::vector<TokenList::Token>& tokens = reader.list.tokens();
  if (reader.unk && tokens[static_cast<size_t>(*reader.unk)].type == TokenType::kNormal) {
    tokens[static_cast<size_t>(*reader.unk)].type = TokenType::kUnknown;
  }
  for (TokenList::Token& token : tokens) {
    const bool byte = !reader.bpe.bytes && reader.decoder.byte_fallback &&
                      token.type == TokenType::kNormal && byte_of_name(token.name) >= 0;
    if (byte) token.type = TokenType::kByte;
    const bool plain = token.type == TokenType::kControl || token.type == TokenType::kUnknown ||
                       (token.type == TokenType::kUserDefined && reader.decoder.byte_level);
    AERIE_RETURN_IF_ERROR(vocabulary->add(token.name,
                                          plain ? token.name : reader.decoder.piece(token.name),
                                          static_cast<int64_t>(token.type), keys));
    reader.in_model.push_back(token.in_model);
  }
  if (reader.unk) roles.unk = reader.unk;
  AERIE_RETURN_IF_ERROR(vocabulary->finish(roles, keys));
  reader.parts.vocabulary = std::move(vocabulary);
  return {};
}

bool is_llama_class(const std::string& name) {
  return name.starts_with("Llama") || name.starts_with("CodeLlama") || name.starts_with("Gemma") ||
         name.starts_with("Cohere");
}

// The tokens around a text are the template's. The classes above make theirs from the settings'
// flags, and where there is no template, the flags count for all.
Status read_template(const Names& names, TokenRoles& roles, Reader& reader) {
  const auto around = [&](const std::optional<std::string>& name, std::optional<int64_t>& id,
                          bool& add) -> Status {
    if (!name) return {};
    const auto found = names.find(*name);
    if (found == names.end()) {
      return reader.root.error(StatusCode::kInvalidData, "post_processor",
                               "adds '{}', which is no token", printable(*name, 40));
    }
    id = found->second;
    add = true;
    return {};
  };
  AERIE_RETURN_IF_ERROR(around(reader.around.before, roles.bos, roles.add_bos));
  AERIE_RETURN_IF_ERROR(around(reader.around.behind, roles.eos, roles.add_eos));
  const HfSettings& settings = reader.settings;
  if (!reader.around.given || is_llama_class(settings.tokenizer_class)) {
    if (settings.add_bos) roles.add_bos = *settings.add_bos && roles.bos;
    if (settings.add_eos) roles.add_eos = *settings.add_eos && roles.eos;
  }
  return {};
}

Status make_parts(Reader& reader) {
  Names names;
  const auto& tokens = reader.list.tokens();
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].name.empty()) names.emplace(tokens[id].name, static_cast<int32_t>(id));
  }
  TokenRoles roles = hf_roles(
      reader.settings,
      [&](std::string_view name) {
        const auto found = names.find(name);
        return found == names.end() ? -1 : found->second;
      },
      static_cast<int64_t>(tokens.size()));
  AERIE_RETURN_IF_ERROR(read_template(names, roles, reader));
  AERIE_RETURN_IF_ERROR(make_vocabulary(hf_keys(reader.root.file()), roles, reader));
  AERIE_ASSIGN_OR_RETURN(
      reader.parts.added,
      in_context(AddedTokens::create(reader.added, &reader.parts.normalizer), reader.root.file()));
  reader.parts.strips_leading_space = reader.decoder.strips_leading_space;
  return {};
}

Status make_bpe(const std::vector<std::pair<std::string_view, std::string_view>>& merges,
                const std::string& key, Reader& reader) {
  reader.bpe.in_model = &reader.in_model;
  PipelineParts& parts = reader.parts;
  AERIE_ASSIGN_OR_RETURN(auto model, Bpe::from_merges(*parts.vocabulary, merges, reader.bpe, key));
  if (reader.bpe.bytes && reader.bpe.unk < 0) {
    for (int byte = 0; byte < 256; ++byte) {
      if (model->byte_id(static_cast<uint8_t>(byte)) >= 0) continue;
      parts.missing_bytes += static_cast<char>(byte);
    }
  }
  GgufTokenizerMetadata metadata =
      gguf_vocabulary(*parts.vocabulary, parts.added, reader.settings.eos_ids);
  parts.gguf =
      reader.bpe.bytes
          ? gguf_of_byte_level(std::move(metadata), *parts.vocabulary, *model, reader.shape)
          : gguf_of_merges(std::move(metadata), *parts.vocabulary, *model, reader.shape);
  parts.model = std::move(model);
  return {};
}

Status read_bpe(const JsonObject& model, Reader& reader) {
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr) return model.error(StatusCode::kNotFound, "vocab", "is missing");
  AERIE_RETURN_IF_ERROR(read_vocab_object(*vocab, model.file() + ": model.vocab", reader));
  AERIE_RETURN_IF_ERROR(read_bpe_options(model, reader));
  AERIE_RETURN_IF_ERROR(read_added_tokens(reader));
  AERIE_RETURN_IF_ERROR(make_parts(reader));
  AERIE_ASSIGN_OR_RETURN(const auto merges, read_merges(model));
  return make_bpe(merges, model.file() + ": model.merges", reader);
}

Status read_unigram(const JsonObject& model, Reader& reader) {
  AERIE_RETURN_IF_ERROR(read_unigram_vocab(model, reader));
  AERIE_ASSIGN_OR_RETURN(const int64_t unk, model.integer("unk_id"));
  if (unk < 0 || static_cast<size_t>(unk) >= reader.scores.size()) {
    return model.error(StatusCode::kInvalidData, "unk_id", "is not an id of the vocabulary");
  }
  AERIE_ASSIGN_OR_RETURN(const bool bytes, model.boolean("byte_fallback", false));
  reader.unk = unk;
  reader.bpe.bytes = false;
  AERIE_RETURN_IF_ERROR(read_added_tokens(reader));
  AERIE_RETURN_IF_ERROR(make_parts(reader));
  PipelineParts& parts = reader.parts;
  AERIE_ASSIGN_OR_RETURN(
      parts.model, in_context(Unigram::create(*parts.vocabulary, reader.scores, {bytes, false}),
                              model.file() + ": model"));
  parts.gguf = not_supported(
      "this tokenizer has no form in GGUF: its unigram model does not work the way SentencePiece's "
      "does");
  return {};
}

// Which pre-tokenizer belongs to a folder that only names its class.
Expected<Recipe> recipe_of_class(const HfSettings& settings) {
  const std::string& name = settings.tokenizer_class;
  if (name.empty() || name == "GPT2Tokenizer" || name == "GPT2TokenizerFast" ||
      name == "CodeGenTokenizer") {
    return recipe_of_name("gpt-2");
  }
  if (name == "Qwen2Tokenizer" || name == "Qwen2TokenizerFast") return recipe_of_name("qwen2");
  return not_supported(
      "{}/tokenizer_config.json: tokenizer_class is '{}'; how it cuts text with vocab.json and "
      "merges.txt is not known, a tokenizer.json would say it",
      settings.folder, printable(name, 40));
}

// The tokens with a role are special, and GPT-2's has both where the settings name none.
Status add_named_tokens(const std::string& file, Reader& reader) {
  for (std::optional<std::string>* role : {&reader.settings.bos, &reader.settings.eos}) {
    if (!*role && reader.model_names.contains("<|endoftext|>")) *role = "<|endoftext|>";
  }
  for (const auto& role : {reader.settings.bos, reader.settings.eos, reader.settings.pad}) {
    const auto found = role ? reader.model_names.find(*role) : reader.model_names.end();
    if (found == reader.model_names.end()) continue;
    AddedToken token;
    token.content = *role;
    token.id = found->second;
    token.special = true;
    const bool known =
        std::ranges::any_of(reader.added, [&](const AddedToken& t) { return t.id == token.id; });
    if (!known) AERIE_RETURN_IF_ERROR(add_token(token, file, reader));
  }
  return {};
}

Expected<std::vector<std::pair<std::string_view, std::string_view>>> read_merges_text(
    const std::string& path, std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    const size_t space = line.find(' ');
    if (space == line.npos || line.find(' ', space + 1) != line.npos) {
      return invalid_data("{}: entry {}, '{}', is not two tokens with a space between them", path,
                          pairs.size(), printable(line, 40));
    }
    pairs.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return pairs;
}

}  // namespace

Expected<PipelineParts> parse_tokenizer_json(const Json& json, const std::string& name,
                                             const HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::view(json, name));
  Reader reader(root, settings);
  AERIE_RETURN_IF_ERROR(read_hf_normalizer(root, reader.parts.normalizer, reader.shape));
  AERIE_ASSIGN_OR_RETURN(reader.pre, read_hf_pre_tokenizer(root, reader.shape));
  AERIE_ASSIGN_OR_RETURN(reader.decoder, read_hf_decoder(root));
  AERIE_ASSIGN_OR_RETURN(reader.around, read_hf_post_processor(root));
  AERIE_ASSIGN_OR_RETURN(const JsonObject model, root.object("model"));
  const std::string_view fallback = model.has("merges") ? "BPE" : "Unigram";
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, model.string("type", fallback));
  if (type == "Unigram" && reader.pre.byte_level) {
    reader.pre.steps.add_byte_names();
    reader.pre.byte_level = false;
  }
  reader.parts.pre_tokenizer = std::move(reader.pre.steps);
  if (type == "BPE") {
    AERIE_RETURN_IF_ERROR(read_bpe(model, reader));
  } else if (type == "Unigram") {
    AERIE_RETURN_IF_ERROR(read_unigram(model, reader));
  } else {
    return model.error(StatusCode::kUnsupported, "type",
                       "is '{}', and this build knows only 'BPE' and 'Unigram'",
                       printable(type, 40));
  }
  return std::move(reader.parts);
}

Expected<PipelineParts> read_tokenizer_json(const std::string& path, const HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const Json json, read_json(path));
  return parse_tokenizer_json(json, path, settings);
}

Expected<PipelineParts> read_vocab_and_merges(const std::string& vocab, const std::string& merges,
                                              const HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const Json json, read_json(vocab));
  AERIE_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::view(json, vocab));
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_file(merges));
  AERIE_ASSIGN_OR_RETURN(const Recipe recipe, recipe_of_class(settings));
  Reader reader(root, settings);
  reader.decoder.byte_level = true;
  reader.shape.recipe = recipe;
  reader.bpe.ignore_merges = recipe.ignore_merges;
  PipelineParts& parts = reader.parts;
  if (settings.add_prefix_space.value_or(false)) {
    parts.pre_tokenizer.add_space();
    reader.shape.is_recipe = false;
  }
  AERIE_RETURN_IF_ERROR(add_recipe(recipe, parts.normalizer, parts.pre_tokenizer));
  AERIE_RETURN_IF_ERROR(read_vocab_object(json, vocab, reader));
  reader.list.expect(settings.added.size());
  for (const AddedToken& token : settings.added) {
    AERIE_RETURN_IF_ERROR(add_token(token, settings.folder + ": the added tokens", reader));
  }
  AERIE_RETURN_IF_ERROR(add_named_tokens(vocab, reader));
  AERIE_RETURN_IF_ERROR(make_parts(reader));
  AERIE_ASSIGN_OR_RETURN(const auto pairs,
                         read_merges_text(merges, std::as_bytes(std::span(text))));
  AERIE_RETURN_IF_ERROR(make_bpe(pairs, merges, reader));
  return std::move(reader.parts);
}

}  // namespace aerie
