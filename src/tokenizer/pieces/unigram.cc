#include "tokenizer/pieces/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/errors.h"
#include "tokenizer/pieces/unicode.h"

namespace aerie {
namespace {

constexpr double kUnknownPenalty = 10;

}  // namespace

Expected<std::unique_ptr<Unigram>> Unigram::create(const Vocabulary& vocabulary,
                                                   const std::vector<double>& scores,
                                                   const UnigramOptions& options) {
  std::unique_ptr<Unigram> model(new Unigram(vocabulary, options));
  if (vocabulary.unk() < 0) return invalid_data("a unigram vocabulary needs an unknown token");
  double least = std::numeric_limits<float>::max(), most = std::numeric_limits<float>::min();
  std::vector<std::pair<std::string_view, int32_t>> names;
  size_t bytes = 0;
  const auto count = std::min(static_cast<int32_t>(scores.size()), vocabulary.size());
  for (int32_t id = 0; id < count; ++id) {
    const double score = scores[static_cast<size_t>(id)];
    if (!std::isfinite(score))
      return invalid_data(fmt::format("the score of token {} is not finite", id));
    const TokenType type = vocabulary.type(id);
    const bool counts = type == TokenType::kNormal || !options.sentencepiece;
    if (counts) {
      least = std::min(least, score);
      most = std::max(most, score);
    }
    if ((counts || type == TokenType::kUserDefined) && !vocabulary.name(id).empty()) {
      names.emplace_back(vocabulary.name(id), id);
      bytes += vocabulary.name(id).size();
    }
  }
  if (bytes >= std::numeric_limits<uint32_t>::max())
    return invalid_data("the vocabulary is too large");
  model->scores_ = scores;
  if (options.sentencepiece) {
    least = static_cast<float>(least);
    for (const auto& [name, id] : names) {
      if (vocabulary.type(id) != TokenType::kUserDefined) continue;
      const auto length = static_cast<float>(name.size());
      model->scores_[static_cast<size_t>(id)] =
          static_cast<float>(static_cast<double>(length * static_cast<float>(most)) - 0.1);
    }
  }
  model->unknown_score_ = options.sentencepiece
                              ? static_cast<float>(static_cast<float>(least) - kUnknownPenalty)
                              : least - kUnknownPenalty;
  model->trie_ = Trie(std::move(names));
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t id = vocabulary.find(name_of_byte(static_cast<uint8_t>(byte)));
    model->byte_ids_[static_cast<size_t>(byte)] = id;
    if (options.byte_fallback && id < 0) {
      return invalid_data(fmt::format("the vocabulary has no token {} to fall back on",
                                      name_of_byte(static_cast<uint8_t>(byte))));
    }
  }
  return model;
}

void Unigram::find_path(std::string_view word, ModelScratch& scratch) const {
  const bool rounds = options_.sentencepiece;
  scratch.path.assign(word.size() + 1, {});
  for (size_t at = 0; at < word.size();) {
    const double before = scratch.path[at].score;
    const size_t length = utf8_length(word[at]);
    bool known = false;
    const auto take = [&](size_t end, double score, int32_t id) {
      ModelScratch::Step& step = scratch.path[end];
      double candidate = score + before;
      if (rounds) candidate = static_cast<float>(candidate);
      if (step.id >= 0 && !(candidate > step.score)) return;
      step.score = candidate;
      step.from = static_cast<uint32_t>(at);
      step.id = id;
    };
    trie_.prefixes(word.substr(at), [&](size_t end, int32_t id) {
      take(at + end, scores_[static_cast<size_t>(id)], id);
      known = known || end == length;
    });
    if (!known) take(at + length, unknown_score_, vocabulary_.unk());
    at += length;
  }
}

void Unigram::encode(std::string_view word, ModelScratch& scratch,
                     std::vector<int32_t>& ids) const {
  if (word.empty()) return;
  size_t count = 0;
  if (const int32_t* known = scratch.cache.find(word, count)) {
    ids.insert(ids.end(), known, known + count);
    return;
  }
  find_path(word, scratch);
  const size_t first = ids.size();
  // From the end to the beginning, then turned round.
  for (size_t end = word.size(); end > 0;) {
    const ModelScratch::Step& step = scratch.path[end];
    const bool unknown = step.id == vocabulary_.unk();
    if (unknown && options_.byte_fallback) {
      for (size_t at = end; at > step.from; --at) {
        ids.push_back(byte_ids_[static_cast<uint8_t>(word[at - 1])]);
      }
    } else if (!unknown || ids.size() == first || ids.back() != step.id) {
      ids.push_back(step.id);  // neighbouring unknown characters are one token
    }
    end = step.from;
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
  scratch.cache.insert(word, std::span(ids).subspan(first));
}

void Unigram::encode_byte(uint8_t byte, ModelScratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.byte_fallback) {
    ids.push_back(byte_ids_[byte]);
  } else {
    encode("\uFFFD", scratch, ids);
  }
}

}  // namespace aerie
