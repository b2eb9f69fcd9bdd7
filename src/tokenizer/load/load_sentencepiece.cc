// Tokenizers from SentencePiece's tokenizer.model: a protocol buffer whose fields are those of
// https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto.
#include <utility>

#include "base/errors.h"
#include "format/input_file.h"
#include "format/text.h"
#include "tokenizer/load/gguf_form.h"
#include "tokenizer/load/hf_folder.h"
#include "tokenizer/load/protobuf.h"
#include "tokenizer/pieces/bpe.h"
#include "tokenizer/pieces/sentencepiece_normalizer.h"
#include "tokenizer/pieces/unigram.h"

namespace aerie {
namespace {

constexpr int64_t kUnigram = 1, kBpe = 2;

struct Piece {
  std::string_view name;
  float score = 0;
  int64_t type = 1;
};

struct ModelFields {
  std::vector<Piece> pieces;
  int64_t model_type = kUnigram;
  bool suffix = false;
  bool byte_fallback = false;
  std::string_view bos = "<s>", eos = "</s>", pad = "<pad>";
  std::string_view charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool denormalizes = false;
};

Status read_piece(std::string_view bytes, ModelFields& fields) {
  Piece piece;
  ProtobufReader reader(bytes);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.number == 1) piece.name = field.bytes;
    if (field.number == 2) piece.score = field.as_float();
    if (field.number == 3) piece.type = field.as_int();
  }
  fields.pieces.push_back(piece);
  return reader.status();
}

Status read_trainer(std::string_view bytes, ModelFields& fields) {
  ProtobufReader reader(bytes);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.number == 3) fields.model_type = field.as_int();
    if (field.number == 24) fields.suffix = field.as_bool();
    if (field.number == 35) fields.byte_fallback = field.as_bool();
    if (field.number == 46) fields.bos = field.bytes;
    if (field.number == 47) fields.eos = field.bytes;
    if (field.number == 48) fields.pad = field.bytes;
  }
  return reader.status();
}

Status read_normalizer(std::string_view bytes, ModelFields& fields) {
  ProtobufReader reader(bytes);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.number == 2) fields.charsmap = field.bytes;
    if (field.number == 3) fields.add_dummy_prefix = field.as_bool();
    if (field.number == 4) fields.remove_extra_whitespaces = field.as_bool();
    if (field.number == 5) fields.escape_whitespaces = field.as_bool();
  }
  return reader.status();
}

Status read_denormalizer(std::string_view bytes, ModelFields& fields) {
  ProtobufReader reader(bytes);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.number == 2) fields.denormalizes = !field.bytes.empty();
  }
  return reader.status();
}

Expected<ModelFields> read_fields(std::string_view bytes) {
  ModelFields fields;
  ProtobufReader reader(bytes);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.wire != ProtobufReader::Field::Wire::kBytes) continue;
    if (field.number == 1) AERIE_RETURN_IF_ERROR(read_piece(field.bytes, fields));
    if (field.number == 2) AERIE_RETURN_IF_ERROR(read_trainer(field.bytes, fields));
    if (field.number == 3) AERIE_RETURN_IF_ERROR(read_normalizer(field.bytes, fields));
    if (field.number == 5) AERIE_RETURN_IF_ERROR(read_denormalizer(field.bytes, fields));
  }
  AERIE_RETURN_IF_ERROR(reader.status());
  return fields;
}

Status check_fields(const ModelFields& fields) {
  if (fields.pieces.empty()) return invalid_data("there are no pieces");
  if (fields.model_type != kUnigram && fields.model_type != kBpe) {
    const char* name = fields.model_type == 3   ? "WORD"
                       : fields.model_type == 4 ? "CHAR"
                                                : "unknown";
    return not_supported(
        "trainer_spec.model_type is {} ({}), and this build knows only UNIGRAM and BPE",
        fields.model_type, name);
  }
  if (fields.denormalizes) {
    return not_supported(
        "denormalizer_spec.precompiled_charsmap changes decoded text, which is not supported");
  }
  size_t unknown = 0;
  for (size_t id = 0; id < fields.pieces.size(); ++id) {
    const Piece& piece = fields.pieces[id];
    if (piece.name.empty()) return invalid_data("pieces[{}].piece is empty", id);
    if (!is_valid_utf8(piece.name)) {
      return invalid_data("pieces[{}].piece, '{}', is not UTF-8", id, printable(piece.name, 40));
    }
    const bool byte = piece.type == static_cast<int64_t>(TokenType::kByte);
    if (byte && (byte_of_name(piece.name) < 0 || !fields.byte_fallback)) {
      return invalid_data("pieces[{}], '{}', has type BYTE, {}", id, printable(piece.name, 40),
                          fields.byte_fallback ? "and its name is not of the form <0x0A>"
                                               : "though trainer_spec.byte_fallback is false");
    }
    unknown += piece.type == static_cast<int64_t>(TokenType::kUnknown) ? 1 : 0;
  }
  if (unknown != 1) {
    return invalid_data("{} pieces have type UNKNOWN, and there must be one", unknown);
  }
  return {};
}

// The pieces, with the folder's added tokens over and behind them.
Expected<TokenList> list_tokens(const ModelFields& fields, const HfSettings& settings,
                                const std::string& name) {
  TokenList list;
  list.expect(fields.pieces.size() + settings.added.size());
  for (size_t id = 0; id < fields.pieces.size(); ++id) {
    const Piece& piece = fields.pieces[id];
    if (piece.type < 1 || piece.type > 6) {
      return invalid_data("pieces[{}].type is {}; 1 to 6 are defined", id, piece.type);
    }
    AERIE_RETURN_IF_ERROR(
        list.set(static_cast<int64_t>(id), piece.name, static_cast<TokenType>(piece.type), name));
  }
  for (const AddedToken& token : settings.added) {
    const auto id = static_cast<size_t>(token.id);
    // A folder may give a spare piece another name.
    if (id < list.tokens().size()) list.tokens()[id].present = false;
    const bool unknown = id < fields.pieces.size() &&
                         fields.pieces[id].type == static_cast<int64_t>(TokenType::kUnknown);
    const TokenType type = unknown         ? TokenType::kUnknown
                           : token.special ? TokenType::kControl
                                           : TokenType::kUserDefined;
    AERIE_RETURN_IF_ERROR(list.set(token.id, token.content, type, settings.folder));
  }
  return list;
}

TokenRoles read_roles(const ModelFields& fields, const HfSettings& settings,
                      const TokenList& list) {
  const auto find = [&](std::string_view name) {
    for (size_t id = 0; id < list.tokens().size(); ++id) {
      if (list.tokens()[id].name == name) return static_cast<int32_t>(id);
    }
    return -1;
  };
  TokenRoles roles = hf_roles(settings, find, static_cast<int64_t>(list.tokens().size()));
  const auto by_piece = [&](std::string_view name, std::optional<int64_t>& role) {
    const int32_t id = role ? -1 : find(name);
    if (id >= 0 && list.tokens()[static_cast<size_t>(id)].type == TokenType::kControl) role = id;
  };
  by_piece(fields.bos, roles.bos);
  by_piece(fields.eos, roles.eos);
  by_piece(fields.pad, roles.pad);
  for (size_t id = 0; id < list.tokens().size(); ++id) {
    if (list.tokens()[id].type == TokenType::kUnknown) roles.unk = static_cast<int64_t>(id);
  }
  // What Llama's and T5's tokenizers do unless they are told otherwise.
  const bool bpe = fields.model_type == kBpe;
  roles.add_bos = settings.add_bos.value_or(bpe) && roles.bos;
  roles.add_eos = settings.add_eos.value_or(!bpe) && roles.eos;
  return roles;
}

Expected<std::unique_ptr<Vocabulary>> make_vocabulary(const TokenList& list,
                                                      const TokenRoles& roles) {
  VocabularyKeys keys = hf_keys("");
  keys.tokens = "the vocabulary";
  keys.types = "the type";
  keys.role_prefix.clear();
  auto vocabulary = std::make_unique<Vocabulary>();
  for (const TokenList::Token& token : list.tokens()) {
    std::string piece = token.name;
    if (token.type == TokenType::kByte) {
      piece.assign(1, static_cast<char>(byte_of_name(token.name)));
    } else if (token.type != TokenType::kControl && token.type != TokenType::kUnknown) {
      piece = unescaped_spaces(token.name);
    }
    AERIE_RETURN_IF_ERROR(
        vocabulary->add(token.name, piece, static_cast<int64_t>(token.type), keys));
  }
  AERIE_RETURN_IF_ERROR(vocabulary->finish(roles, keys));
  return vocabulary;
}

// Added tokens and control pieces in the raw text; user-defined pieces of BPE in the normalised
// one, where they keep characters from joining.
Status add_tokens(const ModelFields& fields, const HfSettings& settings, PipelineParts& parts) {
  std::vector<AddedToken> tokens = settings.added;
  for (AddedToken& token : tokens) token.normalized = false;
  std::vector<bool> added(static_cast<size_t>(parts.vocabulary->size()), false);
  for (const AddedToken& token : tokens) added[static_cast<size_t>(token.id)] = true;
  for (int32_t id = 0; id < static_cast<int32_t>(fields.pieces.size()); ++id) {
    if (added[static_cast<size_t>(id)]) continue;
    const bool user = parts.vocabulary->type(id) == TokenType::kUserDefined;
    if (!parts.vocabulary->is_control(id) && !(user && fields.model_type == kBpe)) continue;
    AddedToken token;
    token.content = parts.vocabulary->name(id);
    token.id = id;
    token.special = !user;
    token.normalized = user;
    tokens.push_back(std::move(token));
  }
  AERIE_ASSIGN_OR_RETURN(parts.added, AddedTokens::create(std::move(tokens), nullptr));
  return {};
}

Status add_normalizer(const ModelFields& fields, const HfSettings& settings, PipelineParts& parts) {
  SentencePieceNormalizerOptions options;
  AERIE_ASSIGN_OR_RETURN(options.map, in_context(Charsmap::parse(fields.charsmap),
                                                 "normalizer_spec.precompiled_charsmap"));
  for (const Piece& piece : fields.pieces) {
    if (piece.type == static_cast<int64_t>(TokenType::kUserDefined)) {
      options.user_defined.emplace_back(piece.name);
    }
  }
  options.add_dummy_prefix = settings.add_prefix_space.value_or(fields.add_dummy_prefix);
  options.remove_extra_whitespaces = fields.remove_extra_whitespaces;
  options.escape_whitespaces = fields.escape_whitespaces;
  options.treat_whitespace_as_suffix = fields.suffix;
  parts.strips_leading_space = options.add_dummy_prefix && !fields.suffix;
  parts.begins_after_added = settings.legacy.value_or(true);
  parts.normalizer.add(sentencepiece_step(std::move(options)));
  return {};
}

Expected<GgufTokenizerMetadata> gguf_form(const ModelFields& fields, const HfSettings& settings,
                                          const std::vector<float>& scores,
                                          const PipelineParts& parts) {
  if (fields.suffix || !fields.escape_whitespaces) {
    return not_supported(
        "this tokenizer has no form in GGUF: it writes white space in a way of its own");
  }
  GgufTokenizerMetadata metadata =
      gguf_vocabulary(*parts.vocabulary, parts.added, settings.eos_ids);
  const bool bpe = fields.model_type == kBpe;
  metadata.model = bpe ? "llama" : "t5";
  metadata.pre = "default";
  metadata.scores = scores;
  metadata.precompiled_charsmap = std::string(fields.charsmap);
  metadata.add_space_prefix = settings.add_prefix_space.value_or(fields.add_dummy_prefix);
  metadata.remove_extra_whitespaces = fields.remove_extra_whitespaces;
  bool user = false;
  for (size_t id = 0; bpe && id < metadata.tokens.size(); ++id) {
    // GGUF's user-defined tokens are found in text as it is.
    if (metadata.types[id] != static_cast<int64_t>(TokenType::kUserDefined)) continue;
    metadata.tokens[id] = unescaped_spaces(metadata.tokens[id]);
    user = true;
  }
  if ((user || !parts.begins_after_added) && *metadata.add_space_prefix) {
    metadata.notes.emplace_back("no space is put before text behind a user-defined token");
  }
  return metadata;
}

Status make_model(const ModelFields& fields, const std::vector<float>& scores,
                  PipelineParts& parts) {
  if (fields.model_type == kBpe) {
    AERIE_ASSIGN_OR_RETURN(parts.model,
                           Bpe::from_scores(*parts.vocabulary, scores, fields.byte_fallback));
    return {};
  }
  AERIE_ASSIGN_OR_RETURN(
      parts.model,
      Unigram::create(*parts.vocabulary, std::vector<double>(scores.begin(), scores.end()),
                      {fields.byte_fallback, true}));
  return {};
}

Expected<PipelineParts> parse(std::string_view bytes, const std::string& name,
                              const HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const ModelFields fields, read_fields(bytes));
  AERIE_RETURN_IF_ERROR(check_fields(fields));
  AERIE_ASSIGN_OR_RETURN(const TokenList list, list_tokens(fields, settings, name));
  PipelineParts parts;
  AERIE_ASSIGN_OR_RETURN(parts.vocabulary,
                         make_vocabulary(list, read_roles(fields, settings, list)));
  AERIE_RETURN_IF_ERROR(add_tokens(fields, settings, parts));
  AERIE_RETURN_IF_ERROR(add_normalizer(fields, settings, parts));
  std::vector<float> scores(list.tokens().size(), 0.0f);
  for (size_t id = 0; id < fields.pieces.size(); ++id) scores[id] = fields.pieces[id].score;
  AERIE_RETURN_IF_ERROR(make_model(fields, scores, parts));
  parts.gguf = gguf_form(fields, settings, scores, parts);
  return parts;
}

}  // namespace

Expected<PipelineParts> parse_sentencepiece_model(std::string_view bytes, const std::string& name,
                                                  const HfSettings& settings) {
  return in_context(parse(bytes, name, settings), name);
}

Expected<PipelineParts> read_sentencepiece_model(const std::string& path,
                                                 const HfSettings& settings) {
  AERIE_ASSIGN_OR_RETURN(const std::string bytes, read_file(path));
  return parse_sentencepiece_model(bytes, path, settings);
}

}  // namespace aerie
