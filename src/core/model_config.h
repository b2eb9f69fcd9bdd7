// What a model is, in numbers: read from a file's metadata, checked there, constant afterwards.
#pragma once

#include <string>

namespace aerie {

struct ModelConfig {
  std::string family;  // "llama"
  std::string name;    // for people; may be empty
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;  // divides heads
  int head_dim = 0;
  int ffn = 0;  // of layers without experts
  // A mixture of experts: feed-forwards of which a row uses some. 0: there are none.
  int experts = 0;
  int used_experts = 0;
  int expert_ffn = 0;
  int shared_ffn = 0;  // of the one that every row uses besides; 0: there is none
  int vocab = 0;       // rows of the LM head: the width of logits
  int context = 0;     // positions that the model was trained for

  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

}  // namespace aerie
