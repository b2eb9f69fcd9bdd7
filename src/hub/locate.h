// From what somebody calls a model to where it lies.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "hub/hub_name.h"

namespace aerie {

enum class LocateFor {
  kModel,  // a tokenizer and a configuration are part of it
  kHead,   // a draft head, which may have neither
};

// What is there under that path is taken, and so is a name of another shape than a hub's, whether
// or not it is there: who opens it says what is wrong. Else the name is looked up in the cache, and
// fetched if it is not there as a whole. The result is a file or a folder.
//
// Errors name `name` and say that there is no such file, and what the hub says.
Expected<std::string> locate_model(const std::string& name, LocateFor use = LocateFor::kModel);

struct PulledModel {
  std::string path;  // what to open
  int64_t bytes = 0;
  int64_t fetched = 0;  // of these, what was not there
};

// Brings what the name stands for now, even if the cache has an older state of it.
Expected<PulledModel> pull_model(const HubName& name);

// The snapshot's folder with files of a dataset's repository, which are fetched unless the cache
// has all of them. `wanted`: names of files, or endings that begin with a dot (".jsonl"), of which
// the cache counts as whole if it has one. kInvalidArgument for what is no ORG/REPO[@REVISION].
Expected<std::string> locate_dataset(const std::string& name, std::span<const std::string> wanted);

}  // namespace aerie
