// The folder of a training run: config.json says what it is, best/ and final/ are what users load.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace aerie::train {

// Options by name, as texts.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

struct RunConfig {
  std::string method;
  OptionTexts fixed;  // the result depends on them: a run does not go on with others
  OptionTexts free;   // the rest
};

// Makes folder and config.json, or finds that the run there is the same up to `free`, which is
// written anew. Else kInvalidArgument, naming what differs; kInvalidData if config.json is none.
Status claim_run(const std::string& folder, const RunConfig& config);

// Puts what `write` writes into an empty folder at `path`, in the place of an older one, so that at
// any moment the older or the newer is there whole, if need be as PATH.old; recover_folder() puts
// that back.
Status replace_folder(const std::string& path,
                      const std::function<Status(const std::string& folder)>& write);
Status recover_folder(const std::string& path);

}  // namespace aerie::train
