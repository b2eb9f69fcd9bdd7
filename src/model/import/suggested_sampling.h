// What a model's makers recommend to sample with: generation_config.json of a Hugging Face folder,
// general.sampling.* of a GGUF file, under llama.cpp's names.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "core/sampling_params.h"
#include "format/gguf/metadata_builder.h"
#include "format/model_file.h"

namespace aerie {

// Settings of SamplingParams of the same names; absent ones are left to others.
struct SuggestedSampling {
  std::optional<double> temperature;
  std::optional<int> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int> penalty_window;

  bool empty() const { return to_string(*this).empty(); }
  void apply_to(SamplingParams& params) const;

  // "temperature 0.6, top-p 0.95"
  friend std::string to_string(const SuggestedSampling& sampling);
};

// A number that was stored as a float is the shortest decimal that means that float: 0.6, as the
// makers wrote it. kInvalidData, naming file and key, for what is no number or out of range.
Expected<SuggestedSampling> read_suggested_sampling(const ModelFile& file);

// Adds what the folder's generation_config.json says as the keys of GGUF; nothing without the file,
// or where it says "do_sample": false. With "do_sample": true and no temperature, that is Hugging
// Face's, 1. kInvalidData, naming the key, for a value of another kind.
Status add_generation_config(const std::string& folder, MetadataBuilder& metadata);

}  // namespace aerie
