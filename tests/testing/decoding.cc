#include "tests/testing/decoding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace aerie::test {
namespace {

struct Running {
  std::unique_ptr<StopCondition> stop;
  std::unique_ptr<Sequence> sequence;
  Reply* reply = nullptr;
};

void take(const Running& running) {
  for (const EmittedToken& token : running.sequence->emitted) {
    running.reply->tokens.push_back(token.id);
    running.reply->emitted.push_back(token);
  }
}

// Records and closes what has finished.
void retire(Decoder& decoder, std::vector<Running>& running) {
  std::erase_if(running, [&](Running& r) {
    if (r.sequence->finish == FinishReason::kNone) return false;
    r.reply->finish = r.sequence->finish;
    r.reply->stats = r.sequence->stats;
    decoder.close(*r.sequence);
    return true;
  });
}

}  // namespace

ForwardOutputs CheckedModel::forward(const ForwardBatch& batch, KvCache& cache) {
  const int layers = config().layers;
  passes_ += batch.end_of(layers) == layers && batch.skipped_layers.empty() ? 1 : 0;
  const Status status = check_batch(batch, config(), options_);
  EXPECT_TRUE(status.ok()) << status.message();
  return model_.forward(batch, cache);
}

ModelCache cache_for(Model& model, const DecoderOptions& options, int sequences,
                     kernels::KvType type, const KvCache::Windows& windows) {
  const int64_t each = options.max_positions + int64_t{kernels::kPagePositions};
  const KvCache::States states = {.loose_rows = 0, .snapshots = 2 * sequences};
  auto cache = make_cache(model, {each * sequences, sequences, type, states, windows});
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache).value();
}

Replies decode(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options,
               std::span<const Request> requests) {
  const int pages = cache.free_pages();
  Decoder decoder(model, cache, drafter, options);
  Replies replies;
  replies.of.resize(requests.size());
  std::vector<Running> running;
  std::vector<Sequence*> batch;
  size_t opened = 0;
  for (int step = 0; opened < requests.size() || !running.empty(); ++step) {
    for (; opened < requests.size() && requests[opened].joins_at <= step; ++opened) {
      const Request& request = requests[opened];
      SequenceOptions settings = request.options;
      std::unique_ptr<StopCondition> stop;
      if (request.make_stop) stop = request.make_stop();
      if (stop != nullptr) settings.stop = stop.get();
      auto sequence = decoder.open(request.prompt, settings);
      EXPECT_TRUE(sequence.ok()) << sequence.status().message();
      if (!sequence.ok()) return replies;
      running.push_back({std::move(stop), std::move(*sequence), &replies.of[opened]});
      const Status status = decoder.prefill(*running.back().sequence);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) return replies;
      const auto length = static_cast<int64_t>(request.prompt.size());
      replies.prefill_passes += (length + options.prefill_chunk - 1) / options.prefill_chunk;
      take(running.back());
    }
    retire(decoder, running);
    if (!running.empty()) {
      batch.clear();
      for (const Running& r : running) batch.push_back(r.sequence.get());
      const Status status = decoder.round(batch);
      EXPECT_TRUE(status.ok()) << status.message();
      if (!status.ok()) return replies;
      for (const Running& r : running) take(r);
      retire(decoder, running);
      ++replies.rounds;
    }
  }
  replies.passes = decoder.target_passes();
  EXPECT_EQ(cache.free_pages(), pages) << "pages were lost";
  return replies;
}

Replies serve(Model& model, KvCache& cache, Drafter* drafter, const DecoderOptions& options,
              std::span<const Request> requests, int suspends) {
  const int used = cache.used_pages();
  Decoder decoder(model, cache, drafter, options);
  Replies replies;
  replies.of.resize(requests.size());
  std::vector<Running> running;
  std::vector<Sequence*> rounds;
  std::vector<PromptPiece> pieces;
  size_t opened = 0;
  for (int step = 0; opened < requests.size() || !running.empty(); ++step) {
    for (; opened < requests.size() && requests[opened].joins_at <= step; ++opened) {
      const Request& request = requests[opened];
      SequenceOptions settings = request.options;
      std::unique_ptr<StopCondition> stop;
      if (request.make_stop) stop = request.make_stop();
      if (stop != nullptr) settings.stop = stop.get();
      auto sequence = decoder.open(request.prompt, settings);
      EXPECT_TRUE(sequence.ok()) << sequence.status().message();
      if (!sequence.ok()) return replies;
      replies.reused += (*sequence)->reused;
      running.push_back({std::move(stop), std::move(*sequence), &replies.of[opened]});
    }
    for (size_t i = 0; i < running.size() && suspends > 0; ++i) {
      Sequence& sequence = *running[i].sequence;
      const bool picked =
          (static_cast<size_t>(step) * 7 + i * 5) % static_cast<size_t>(suspends) == 0;
      if (sequence.cache < 0) {
        const Status status = step % 3 == 0 ? decoder.resume(sequence) : Status();
        EXPECT_TRUE(status.ok()) << status.message();
      } else if (picked) {
        decoder.suspend(sequence);
        ++replies.suspended;
      }
    }
    rounds.clear();
    pieces.clear();
    int left = options.prefill_chunk;
    for (const Running& r : running) {
      r.sequence->emitted.clear();
      if (r.sequence->cache < 0) continue;
      const int unread = decoder.unread(*r.sequence);
      if (unread == 0) rounds.push_back(r.sequence.get());
      if (unread == 0 || left == 0) continue;
      pieces.push_back({r.sequence.get(), std::min(unread, left)});
      left -= pieces.back().rows;
    }
    if (rounds.empty() && pieces.empty()) continue;
    const Status status = decoder.step(rounds, pieces);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return replies;
    for (const Running& r : running) take(r);
    retire(decoder, running);
    ++replies.rounds;
  }
  replies.passes = decoder.target_passes();
  EXPECT_EQ(cache.used_pages(), used) << "pages were lost";
  return replies;
}

std::string difference(std::span<const Reply> expected, std::span<const Reply> actual) {
  if (expected.size() != actual.size()) {
    return fmt::format("{} replies instead of {}", actual.size(), expected.size());
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<int32_t>& a = expected[i].tokens;
    const std::vector<int32_t>& b = actual[i].tokens;
    for (size_t t = 0; t < std::min(a.size(), b.size()); ++t) {
      if (a[t] == b[t]) continue;
      return fmt::format("reply {}: token {} is {} instead of {}", i, t, b[t], a[t]);
    }
    if (a.size() != b.size()) {
      return fmt::format("reply {}: {} tokens instead of {}", i, b.size(), a.size());
    }
    if (expected[i].finish != actual[i].finish) {
      return fmt::format("reply {}: finished by '{}' instead of '{}'", i,
                         finish_reason_name(actual[i].finish),
                         finish_reason_name(expected[i].finish));
    }
  }
  return {};
}

}  // namespace aerie::test
