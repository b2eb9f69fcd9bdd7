#include "tokenizer/pieces/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "tokenizer/pieces/byte_alphabet.h"

namespace aerie {

struct PreTokenizer::Run {
  Scratch& scratch;
  std::vector<std::string_view>& words;
};

void PreTokenizer::add_split(Regex pattern, SplitBehavior behavior, bool invert) {
  Step step;
  step.kind = Kind::kSplit;
  step.pattern = std::make_unique<Regex>(std::move(pattern));
  step.match = patterns_++;
  step.behavior = behavior;
  step.invert = invert;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_byte_names() {
  Step step;
  step.kind = Kind::kByteNames;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_space() {
  Step step;
  step.kind = Kind::kSpace;
  steps_.push_back(std::move(step));
}

void PreTokenizer::add_metaspace(std::string replacement, PrependScheme scheme, bool split) {
  Step step;
  step.kind = Kind::kMetaspace;
  step.replacement = std::move(replacement);
  step.scheme = scheme;
  step.cut = split;
  steps_.push_back(std::move(step));
}

PreTokenizer::Scratch PreTokenizer::make_scratch() const {
  Scratch scratch;
  for (const Step& step : steps_) {
    if (step.pattern != nullptr) scratch.matches.emplace_back(*step.pattern);
  }
  return scratch;
}

Status PreTokenizer::split(std::string_view text, Where where, Scratch& scratch,
                           std::vector<std::string_view>& words) const {
  Run run{scratch, words};
  return descend(0, text, where, run);
}

Status PreTokenizer::descend(size_t step, std::string_view piece, Where where, Run& run) const {
  if (piece.empty()) return {};
  if (step == steps_.size()) {
    run.words.push_back(piece);
    return {};
  }
  switch (steps_[step].kind) {
    case Kind::kSplit:
      return split_by(step, piece, where, run);
    case Kind::kMetaspace:
      return metaspace(step, piece, where, run);
    case Kind::kByteNames: {
      std::string& text = run.scratch.texts.emplace_back();
      for (const char c : piece) append_byte_name(static_cast<uint8_t>(c), text);
      return descend(step + 1, text, where, run);
    }
    case Kind::kSpace:
      break;
  }
  if (!where.continues && piece[0] != ' ') {
    piece = run.scratch.texts.emplace_back(" ").append(piece);
  }
  return descend(step + 1, piece, where, run);
}

Status PreTokenizer::split_by(size_t step, std::string_view piece, Where where, Run& run) const {
  const Step& rule = steps_[step];
  Regex::Matches matches(*rule.pattern, piece, run.scratch.matches[rule.match]);
  const bool streams =
      rule.behavior == SplitBehavior::kIsolated || rule.behavior == SplitBehavior::kRemoved;
  std::vector<Piece> pieces;
  const auto take = [&](Piece part) -> Status {
    if (rule.invert) part.match = !part.match;
    if (!streams) {
      pieces.push_back(part);
      return {};
    }
    if (part.match && rule.behavior == SplitBehavior::kRemoved) return {};
    const Where inner = part.begin == 0 ? where : Where{false, false};
    return descend(step + 1, piece.substr(part.begin, part.end - part.begin), inner, run);
  };
  size_t done = 0;
  while (matches.next()) {
    if (done < matches.begin()) AERIE_RETURN_IF_ERROR(take({done, matches.begin(), false}));
    AERIE_RETURN_IF_ERROR(take({matches.begin(), matches.end(), true}));
    done = matches.end();
  }
  AERIE_RETURN_IF_ERROR(matches.status());
  if (done < piece.size()) AERIE_RETURN_IF_ERROR(take({done, piece.size(), false}));
  if (streams) return {};
  join(rule.behavior, pieces);
  for (const Piece& part : pieces) {
    const Where inner = part.begin == 0 ? where : Where{false, false};
    AERIE_RETURN_IF_ERROR(
        descend(step + 1, piece.substr(part.begin, part.end - part.begin), inner, run));
  }
  return {};
}

void PreTokenizer::join(SplitBehavior behavior, std::vector<Piece>& pieces) {
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::ranges::reverse(pieces);
  std::vector<Piece> joined;
  bool before = false;  // whether the piece before was a match
  for (const Piece& piece : pieces) {
    const bool joins =
        behavior == SplitBehavior::kContiguous ? piece.match == before : piece.match && !before;
    before = piece.match;
    if (!joins || joined.empty()) {
      joined.push_back(piece);
    } else if (backwards) {
      joined.back().begin = piece.begin;
    } else {
      joined.back().end = piece.end;
    }
  }
  if (backwards) std::ranges::reverse(joined);
  pieces = std::move(joined);
}

Status PreTokenizer::metaspace(size_t step, std::string_view piece, Where where, Run& run) const {
  const Step& rule = steps_[step];
  const std::string& sign = rule.replacement;
  const bool wanted = rule.scheme == PrependScheme::kAlways ||
                      (rule.scheme == PrependScheme::kFirst && where.first);
  const bool prepend = wanted && !where.continues && piece[0] != ' ' && !piece.starts_with(sign);
  if (prepend || piece.find(' ') != piece.npos) {
    std::string& text = run.scratch.texts.emplace_back(prepend ? sign : std::string());
    size_t done = 0;
    for (size_t at = piece.find(' '); at != piece.npos; at = piece.find(' ', done)) {
      text.append(piece.substr(done, at - done)).append(sign);
      done = at + 1;
    }
    piece = text.append(piece.substr(done));
  }
  if (!rule.cut) return descend(step + 1, piece, where, run);
  size_t begin = 0;
  while (begin < piece.size()) {
    const size_t behind = begin + (piece.substr(begin).starts_with(sign) ? sign.size() : 0);
    const size_t end = std::min(piece.find(sign, behind), piece.size());
    const Where inner = begin == 0 ? where : Where{false, false};
    AERIE_RETURN_IF_ERROR(descend(step + 1, piece.substr(begin, end - begin), inner, run));
    begin = end;
  }
  return {};
}

}  // namespace aerie
