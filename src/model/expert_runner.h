// The feed-forwards of layers with experts, over the rows of a pass.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/blueprint.h"
#include "model/expert_routing.h"
#include "model/model.h"
#include "model/transformer_weights.h"

namespace aerie {

// Not thread-safe. Allocates in create() alone.
class ExpertRunner {
 public:
  // Null if no layer has experts.
  static Expected<std::unique_ptr<ExpertRunner>> create(const Blueprint& blueprint,
                                                        const ModelOptions& options);

  // stream += what the experts that each row chooses make of x, all rows of hidden. They choose by
  // `chooser`, which must be filled for layer.router; x for what every row uses, and its floats are
  // read. Both may be the same.
  void run(const ExpertWeights& layer, const kernels::Activations& chooser,
           const kernels::Activations& x, float* stream);

  // Experts whose weights were read, each once a run, since the object was made.
  int64_t reads() const { return reads_; }

 private:
  ExpertRunner(const Blueprint& blueprint, const ModelOptions& options);
  Status allocate(int max_rows);
  void run_shared(const ExpertWeights& layer, const kernels::Activations& x, float* stream);

  ModelConfig config_;
  ExpertRouter router_;
  kernels::Activation activation_;
  float scale_;  // on what is added to the stream
  const kernels::Backend* backend_;
  ThreadPool* pool_;
  ExpertRouting routing_;
  int64_t reads_ = 0;
  std::vector<float> logits_, gate_, up_, down_, shared_weights_;
  std::vector<int32_t> every_row_;
  std::vector<kernels::MatmulTarget> products_;
  kernels::Activations gathered_, gated_, shared_;
};

}  // namespace aerie
