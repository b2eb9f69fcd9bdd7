// The file data.json of a folder of samples.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/samples/data_info.h"

namespace aerie::train {

// kNotFound if it cannot be read.
Expected<PromptFile> prompt_file(const std::string& path);

// The same of a file or a folder (engine/samples/data_info.h); errors of opening it.
Expected<std::string> model_fingerprint(const std::string& path);

// What differs, for people: "seed 1 there, 2 now"; empty: nothing but that one has more files of
// prompts than the other.
std::string difference(const DataInfo& there, const DataInfo& now);

// DIR/data.json. kNotFound if there is none.
Expected<DataInfo> read_info(const std::string& folder);

// Makes folder and data.json, or finds that the samples there are of the same kind: else
// kInvalidArgument, naming the difference.
Status claim_folder(const std::string& folder, const DataInfo& info);

}  // namespace aerie::train
