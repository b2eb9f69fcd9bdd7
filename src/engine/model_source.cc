#include "engine/model_source.h"

#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/system/topology.h"
#include "format/converted_file.h"
#include "format/gguf/gguf_write.h"
#include "format/gguf/metadata_builder.h"
#include "format/input_file.h"
#include "format/safetensors/quantized_folder.h"
#include "format/torch/torch_folder.h"
#include "hub/locate.h"
#include "model/import/hugging_face_file.h"

namespace aerie {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";

Expected<ChatTemplate> parse_template(std::string_view source, const Tokenizer& tokenizer) {
  const auto name = [&](int32_t id) {
    return id < 0 ? std::nullopt : std::optional<std::string>(tokenizer.piece(id));
  };
  return ChatTemplate::parse(source, {name(tokenizer.bos()), name(tokenizer.eos())});
}

Expected<std::string> template_in(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view text, file.string(kTemplateKey));
  return std::string(text);
}

Expected<ChatTemplate> read_chat_template(const std::string& name, Expected<std::string> source,
                                          const Tokenizer& tokenizer) {
  if (!source.ok() && source.status().code() == StatusCode::kNotFound) {
    return not_found("{} has no chat template; give it a raw prompt instead", name);
  }
  if (!source.ok()) return source.status();
  return in_context(parse_template(*source, tokenizer), name);
}

Expected<std::unique_ptr<ModelFile>> converted(std::unique_ptr<ModelFile> file,
                                               const Conversion& conversion, ThreadPool& pool) {
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<ConvertedFile> result,
                         ConvertedFile::wrap(std::move(file), conversion, pool));
  return std::unique_ptr<ModelFile>(std::move(result));
}

// With float matrices converted to the type, if there is one.
Expected<std::unique_ptr<ModelFile>> as_type(std::unique_ptr<ModelFile> file,
                                             std::optional<DType> type, ThreadPool& pool) {
  if (!type) return file;
  return converted(std::move(file), {*type, false}, pool);
}

// A folder's weights with the tokenizer and the template that lie beside them.
Expected<std::unique_ptr<ModelFile>> open_whole_folder(const std::string& path,
                                                       std::vector<std::string>& notes) {
  return open_hugging_face_folder(path, [&](int64_t vocab, MetadataBuilder& metadata) -> Status {
    if (metadata.has(kDraftIdsKey)) return {};  // its rows are no tokens of its own
    AERIE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           Tokenizer::from_folder(path));
    AERIE_ASSIGN_OR_RETURN(GgufTokenizerMetadata words, tokenizer->gguf_metadata());
    AERIE_RETURN_IF_ERROR(fit_tokens(vocab, words).with_context(path));
    notes.insert(notes.end(), words.notes.begin(), words.notes.end());
    add_tokenizer(words, metadata);
    const Expected<std::string> chat = chat_template_of_folder(path);
    if (chat.ok()) metadata.add_string(kTemplateKey, *chat);
    return chat.status().code() == StatusCode::kNotFound ? Status() : chat.status();
  });
}

// Whether safetensors are to become safetensors again.
bool is_for_folder(const ConvertOptions& options) {
  return (is_folder(options.input) || options.input.ends_with(".safetensors")) &&
         (is_folder(options.output) || !options.output.ends_with(".gguf"));
}

Expected<int64_t> convert_folder(const ConvertOptions& options) {
  const bool fits = options.weight_type == DType::kQ8_0 || options.weight_type == DType::kQ4_0;
  if (fits) return write_quantized_folder(options.input, options.output, *options.weight_type);
  return invalid_argument(
      "{}: name the GGUF file to be written, which ends in .gguf; or ask for the type q8_0 or "
      "q4_0, in "
      "which safetensors can be written to a folder",
      options.output);
}

}  // namespace

Expected<ModelSource> open_model_source(const std::string& name, std::optional<DType> weight_type,
                                        ThreadPool& pool) {
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(name));
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<ModelFile> file, open_model_file(path));
  if (!is_folder(path)) return model_source_of(std::move(file), path, weight_type, pool);
  ModelSource source;
  AERIE_ASSIGN_OR_RETURN(source.tokenizer, Tokenizer::from_folder(path));
  source.chat_template = read_chat_template(path, chat_template_of_folder(path), *source.tokenizer);
  AERIE_ASSIGN_OR_RETURN(source.file, as_type(std::move(file), weight_type, pool));
  return source;
}

Expected<ModelSource> model_source_of(std::unique_ptr<ModelFile> file, const std::string& name,
                                      std::optional<DType> weight_type, ThreadPool& pool) {
  ModelSource source;
  AERIE_ASSIGN_OR_RETURN(source.tokenizer, Tokenizer::from_gguf(*file));
  source.chat_template = read_chat_template(name, template_in(*file), *source.tokenizer);
  AERIE_ASSIGN_OR_RETURN(source.file, as_type(std::move(file), weight_type, pool));
  return source;
}

Status use_chat_template(const std::string& given, ModelSource& source) {
  std::string text = given;
  std::string where;
  const bool is_text =
      given.find("{{") != std::string::npos || given.find("{%") != std::string::npos;
  if (!is_text) {
    AERIE_ASSIGN_OR_RETURN(text, read_file(given, int64_t{1} << 20));
    where = given;
  }
  Expected<ChatTemplate> parsed = parse_template(text, *source.tokenizer);
  if (!parsed.ok() && !where.empty()) return parsed.status().with_context(where);
  if (!parsed.ok()) return parsed.status();
  source.chat_template = std::move(parsed);
  return {};
}

Expected<ModelSource> open_draft_source(const std::string& path, std::optional<DType> weight_type,
                                        ThreadPool& pool) {
  ModelSource source;
  AERIE_ASSIGN_OR_RETURN(source.file, open_model_file(path));
  if (source.file->find(kDraftIdsKey) == nullptr) {
    AERIE_ASSIGN_OR_RETURN(source, open_model_source(path, std::nullopt, pool));
  }
  if (weight_type) {
    AERIE_ASSIGN_OR_RETURN(source.file,
                           converted(std::move(source.file), {*weight_type, true}, pool));
  }
  return source;
}

Expected<std::unique_ptr<ModelFile>> open_whole_model(const std::string& name,
                                                      std::vector<std::string>& notes) {
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(name));
  return is_folder(path) ? open_whole_folder(path, notes) : open_model_file(path);
}

Expected<ConvertReport> convert_model(const ConvertOptions& asked) {
  ConvertReport report;
  ConvertOptions options = asked;
  AERIE_ASSIGN_OR_RETURN(options.input, locate_model(asked.input, LocateFor::kHead));
  if (is_torch_path(options.input)) {
    if (options.weight_type) {
      return invalid_argument(
          "{}: PyTorch's files become safetensors with the types that they have; convert these to "
          "another type",
          options.input);
    }
    AERIE_ASSIGN_OR_RETURN(report.bytes, convert_torch(options.input, options.output));
    return report;
  }
  if (is_for_folder(options)) {
    AERIE_ASSIGN_OR_RETURN(report.bytes, convert_folder(options));
    return report;
  }
  if (is_folder(options.output)) {
    return invalid_argument("{}: is a folder; name the GGUF file to be written", options.output);
  }
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<ModelFile> file,
                         open_whole_model(options.input, report.notes));
  ThreadPool pool(options.threads > 0 ? options.threads : default_threads());
  if (options.weight_type) {
    AERIE_ASSIGN_OR_RETURN(
        file, converted(std::move(file), {*options.weight_type, options.requantize}, pool));
  }
  AERIE_RETURN_IF_ERROR(write_gguf(*file, options.output));
  std::error_code error;  // of what is no file
  const auto bytes = std::filesystem::file_size(options.output, error);
  if (!error) report.bytes = static_cast<int64_t>(bytes);
  return report;
}

}  // namespace aerie
