// A Service for fuzzing, without threads: replies are a few bytes, some of them no UTF-8.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/service.h"
#include "tests/testing/tiny_model.h"

namespace aerie::test {

class FuzzService final : public Service {
 public:
  // Decodes all that was submitted.
  void run() {
    for (Job& job : std::exchange(jobs_, {})) finish(job);
  }

  const std::string& model_name() const override { return name_; }
  int context() const override { return 1 << 14; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const Expected<ChatTemplate>& chat_template() const override { return chat_template_; }
  std::shared_ptr<const TokenTrie> token_trie() const override { return trie_; }
  std::vector<std::string> speculations() const override { return speculations_; }
  int embedding_size() const override { return 3; }
  Expected<Id> submit(Request request, std::shared_ptr<ReplySink> sink) override {
    if (request.prompt.empty()) {
      return Status(StatusCode::kInvalidArgument, "the prompt has no tokens");
    }
    jobs_.push_back({std::move(request), std::move(sink)});
    return static_cast<Id>(jobs_.size());
  }
  void cancel(Id) override {}
  ServiceStats stats() const override { return {}; }
  void drain() override {}

 private:
  struct Job {
    Request request;
    std::shared_ptr<ReplySink> sink;
  };

  static const TinyFile& file() {
    static const TinyFile file([] {
      TinySpec spec;
      spec.tokenizer = true;
      spec.vocab = kByteVocab;
      return spec;
    }());
    return file;
  }

  static void finish(Job& job) {
    if (job.request.pooling != Pooling::kNone) {
      ReplyEnd end;
      end.finish = FinishReason::kStop;
      end.embedding = {1e-30f, std::numeric_limits<float>::infinity(), -0.0f};
      return job.sink->on_end(std::move(end));
    }
    for (const std::string& bytes :
         std::vector<std::string>{"<tool", "_call>{\"", "\xC3", "\xFF(\"</"}) {
      ReplyDelta delta;
      delta.text = bytes;
      for (const char c : bytes) {
        EmittedToken token;
        token.id = static_cast<unsigned char>(c);
        const int logprobs = job.request.sampling.logprobs;
        for (int i = 0; i <= logprobs; ++i) {
          token.logprobs.push_back({i + 128, -std::numeric_limits<float>::infinity()});
        }
        delta.tokens.push_back(std::move(token));
      }
      if (job.request.trace) delta.tree.push_back({kTurnEnd, -1, 0.5f, true});
      job.sink->on_delta(std::move(delta));
    }
    ReplyEnd end;
    end.finish = FinishReason::kStop;
    end.text = "\xE2\x82";
    end.prompt_tokens = static_cast<int>(job.request.prompt.size());
    job.sink->on_end(std::move(end));
  }

  const std::string name_ = "fuzz";
  const std::vector<std::string> speculations_ = {"auto", "ngram"};
  const std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::from_gguf(file().gguf()).value();
  const std::shared_ptr<const TokenTrie> trie_ = make_token_trie(*tokenizer_);
  const Expected<ChatTemplate> chat_template_ = ChatTemplate::parse(
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ m.tool_calls }}"
      "<|im_end|>{% endfor %}{{ tools }}{# so that it thinks and calls: </think> <tool_call> #}");
  std::vector<Job> jobs_;
};

}  // namespace aerie::test
