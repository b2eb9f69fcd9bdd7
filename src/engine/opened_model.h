// A model with its tokenizer, cache and drafters, ready to be decoded with: what an Engine is made
// of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "decode/decoder.h"
#include "draft/auto/pass_cost.h"
#include "draft/draft_host.h"
#include "draft/drafter.h"
#include "engine/engine_options.h"
#include "engine/model_source.h"
#include "engine/placement/device_choice.h"
#include "engine/placement/memory.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "parallel/split_backend.h"

namespace aerie {

struct OpenedModel {
  struct Speculation {
    std::vector<ModelSource> sources;  // of models that the drafter runs
    std::unique_ptr<Drafter> drafter;  // null: plain decoding
    int max_nodes = 0;
  };

  EngineOptions options;  // with the defaults filled in
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<ThreadPool> draft_pool;  // null: drafters have the other one
  ModelSource source;
  std::unique_ptr<SplitBackend> split;   // of options.group; null without one
  std::unique_ptr<OpenedDevice> device;  // null: the processor computes the model
  std::unique_ptr<Model> model;
  ModelCache cache;
  std::unique_ptr<PassCost> cost;         // null unless a speculation decides by it
  std::vector<Speculation> speculations;  // options.speculation, then more_speculations
  MemoryRoom memory;                      // the processor's, as far as it was accounted for
  ModelOptions model_options;
  DecoderOptions decoder;

  // ORG/REPO of what came from a hub; else the file's or folder's, without its ending.
  std::string name() const;
  // Of the device that computes the model; empty: the processor does.
  std::string device_make() const { return device ? device->make() : ""; }
  const ModelConfig& config() const { return model->config(); }
  const Tokenizer& tokenizer() const { return *source.tokenizer; }
  const ModelFile& file() const { return *source.file; }
  // kUnsupported with the reason if the model has no template that can be rendered.
  const Expected<ChatTemplate>& chat_template() const { return source.chat_template; }
  // Of EngineOptions::speculation; null: none, or a service has it.
  const Drafter* drafter() const { return speculations.front().drafter.get(); }
  // What passes cost, as far as known; null unless a speculation decides by it.
  const PassCost* pass_cost() const { return cost.get(); }
};

// The same of what somebody calls a model, opened or not.
std::string model_name(const std::string& model);

// What drafters for it are made with, for so many sequences at a time; without what passes cost.
DraftTarget draft_target(const OpenedModel& opened, int sequences);

// make_drafter(), and what a constraint forces is drafted first (draft/lookup/forced_text.h). Null
// for plain decoding.
Expected<std::unique_ptr<Drafter>> make_drafter_for_text(const SpeculativeConfig& config,
                                                         DraftHost& host);

// kInvalidArgument for an option that cannot be, and the errors of all that is opened.
Expected<OpenedModel> open_model(const EngineOptions& options, const Concurrency& concurrency);

}  // namespace aerie
