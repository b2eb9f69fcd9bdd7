// What a path holds: a model's weights, tokenizer and chat template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/thread_pool.h"
#include "format/model_file.h"
#include "tensor/dtype.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct ModelSource {
  std::unique_ptr<ModelFile> file;
  std::unique_ptr<Tokenizer> tokenizer;  // not null, but for open_draft_source()
  // kNotFound or kUnsupported with the reason if there is none that can be rendered.
  Expected<ChatTemplate> chat_template = not_found("no model is open");
};

// Opens a GGUF file or a Hugging Face folder, or what such a name stands for (hub/locate.h). With
// `weight_type`, float matrices are converted to it as they are read (format/converted_file.h);
// `pool` must then outlive the result.
Expected<ModelSource> open_model_source(const std::string& name, std::optional<DType> weight_type,
                                        ThreadPool& pool);

// The same of a file that has its tokenizer among the metadata. `name`: for messages.
Expected<ModelSource> model_source_of(std::unique_ptr<ModelFile> file, const std::string& name,
                                      std::optional<DType> weight_type, ThreadPool& pool);

// Gives the model another chat template: Jinja's text, or the name of a file of it. Errors name the
// file.
Status use_chat_template(const std::string& given, ModelSource& source);

// The same of a model that drafts for another. One that says itself which of the target's tokens
// its rows stand for (kDraftIdsKey) needs no tokenizer, and has none here. With `weight_type`,
// matrices that are quantised already are converted, too: what a draft loses costs no exactness.
Expected<ModelSource> open_draft_source(const std::string& path, std::optional<DType> weight_type,
                                        ThreadPool& pool);

// The weights of the same with tokenizer and chat template among the metadata, as a GGUF file has
// them; what GGUF has no way to express is added to `notes`. kUnsupported, saying what, if GGUF has
// no name for something that the tokenizer does.
Expected<std::unique_ptr<ModelFile>> open_whole_model(const std::string& name,
                                                      std::vector<std::string>& notes);

struct ConvertOptions {
  // A GGUF file, a Hugging Face folder, a draft head, or PyTorch's files; or a name of one.
  std::string input;
  std::string output;  // the GGUF file or the folder to be written
  // Of the matrices; none: they keep the type that they have.
  std::optional<DType> weight_type;
  bool requantize = false;  // see format/converted_file.h
  int threads = 0;          // 0: default_threads()
};

// What a conversion has to say beside its result: what GGUF has no way to express.
struct ConvertReport {
  std::vector<std::string> notes;
  int64_t bytes = 0;  // written
};

// Writes the model as one GGUF file, tokenizer and chat template with it. kUnsupported, saying
// what, if GGUF has no name for something that the tokenizer does.
//
// PyTorch's files become safetensors instead, of the types that they have
// (format/torch/torch_folder.h). And a Hugging Face folder, or a safetensors file, becomes a folder
// if the output's name does not end in ".gguf" (format/safetensors/quantized_folder.h): the weight
// type must be Q8_0 or Q4_0.
Expected<ConvertReport> convert_model(const ConvertOptions& options);

}  // namespace aerie
