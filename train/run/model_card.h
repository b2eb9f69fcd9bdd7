// What a training tells of what came of it: README.md beside a checkpoint for people, report.json
// of the run for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"
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

// How the run in `folder` ended, where its best checkpoint lies, what its evaluation said and how
// it is used; `log` has the lines of log.jsonl. Nothing of a checkpoint where none was evaluated
// yet.
std::string run_report(const CardFacts& facts, const std::string& folder, const TrainResult& result,
                       const std::vector<Json>& log);

}  // namespace aerie::train
