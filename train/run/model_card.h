// README.md beside a trained checkpoint: what it is, where it comes from, what was measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/data/dataset.h"
#include "train/run/trainer.h"

namespace aerie::train {

struct CardFacts {
  std::string method, speculate, own_model;  // "eagle3", then as DraftSettings
  std::string base_model, base_model_path;
  std::string command;     // as it was typed
  std::string processor;   // and how many processes
  std::string data_notes;  // what the user says of the data: origin, licences; may be empty
  std::vector<std::string> folders;
  std::vector<Dataset> const* datasets = nullptr;  // as the folders; not owned
  size_t training_samples = 0, validation_samples = 0;
  int64_t parameters = 0;
  int eval_tokens = 0;  // of a reply in measurements
  double eval_temperature = 0.0;
};

std::string model_card(const CardFacts& facts, const RunState& state, const Evaluation& evaluation);

}  // namespace aerie::train
