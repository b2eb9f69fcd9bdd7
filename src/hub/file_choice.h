// Which files of a repository are a model or a draft head.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace aerie {

struct FileChoice {
  std::vector<std::string> files;  // sorted
  std::string open;                // the file to open; empty: the folder
  std::string note;                // which quantisation was taken, where nobody asked for one
};

// Of safe names. With a `pick`, the file of that name, or the GGUF file of that quantisation in any
// case ("q4_k_m") with all of its parts. Without one:
//  - of a repository with config.json and safetensors, these and what belongs to a tokenizer;
//  - else of GGUF files, Q4_K_M or what comes next in default_quantisations();
//  - else safetensors, or PyTorch's files, with what lies beside them.
// Projectors of images (mmproj) and importance matrices are never taken, nor files in folders but
// for GGUF files.
//
// kNotFound, saying what there is, if nothing fits. Messages do not name the repository.
Expected<FileChoice> choose_files(std::span<const std::string> names, const std::string& pick);

// The order in which a quantisation is taken where none is asked for.
std::span<const std::string_view> default_quantisations();

// Whether the files of a choice are all that it takes, so far as they say so themselves: the shards
// that an index in `folder` names, and with `is_model` a configuration and a tokenizer.
bool is_complete(const FileChoice& choice, const std::string& folder, bool is_model);

}  // namespace aerie
