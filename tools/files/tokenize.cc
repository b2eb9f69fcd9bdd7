#include "tools/files/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "base/errors.h"
#include "base/log.h"
#include "base/utf8.h"
#include "format/gguf/gguf.h"
#include "format/mapped_file.h"
#include "hub/locate.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace aerie {
namespace {

using Json = nlohmann::ordered_json;

// On one line, with what cannot be seen or is not UTF-8 as escapes.
std::string visible(std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    const Utf8Unit unit = utf8_next(piece);
    const std::string_view part = piece.substr(0, unit.length);
    const auto byte = static_cast<uint8_t>(part[0]);
    if (part == "\n") {
      text += "\\n";
    } else if (part == "\t") {
      text += "\\t";
    } else if (part == "\\") {
      text += "\\\\";
    } else if (unit.kind == Utf8Kind::kValid && byte >= 0x20 && byte != 0x7F) {
      text += part;
    } else {
      for (const char c : part) text += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    }
    piece.remove_prefix(unit.length);
  }
  return text;
}

Expected<std::vector<int32_t>> parse_ids(std::string_view text, int vocab_size) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<int32_t> ids;
  while (true) {
    const size_t begin = text.find_first_not_of(kBetween);
    if (begin == text.npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kBetween));
    int32_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocab_size) {
      return invalid_argument("'{}' is not a token id; the model has ids 0 to {}",
                              visible(word.substr(0, 40)), vocab_size - 1);
    }
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Of a GGUF file or of a Hugging Face folder.
Expected<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& name) {
  AERIE_ASSIGN_OR_RETURN(const std::string model, locate_model(name));
  std::error_code error;
  if (std::filesystem::is_directory(model, error)) return Tokenizer::from_folder(model);
  AERIE_ASSIGN_OR_RETURN(const auto file, GgufFile::open(model));
  auto tokenizer = Tokenizer::from_gguf(*file);
  AERIE_RETURN_IF_ERROR(file->check_intact());
  return tokenizer;
}

Status decode(const Tokenizer& tokenizer, const TokenizeCommand& options, std::ostream& out) {
  AERIE_ASSIGN_OR_RETURN(const auto ids, parse_ids(options.text, tokenizer.vocab_size()));
  std::string text;
  Detokenizer detokenizer(tokenizer, options.special, DetokenizeFrom::kBeginning);
  for (const int32_t id : ids) detokenizer.push(id, text);
  detokenizer.finish(text);
  if (options.json) {
    out << dump({{"text", text}});
  } else {
    out << text << '\n';
  }
  return {};
}

size_t count_missing(const Tokenizer& tokenizer, std::string_view text) {
  size_t missing = 0;
  for (const char c : text) missing += tokenizer.missing_bytes().find(c) != std::string_view::npos;
  return missing;
}

void warn_of_missing(size_t missing) {
  if (missing == 0) return;
  log(LogLevel::kWarning,
      fmt::format("{} of the text's bytes have no token in this vocabulary and are left out",
                  missing));
}

Json to_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool ids_only) {
  Json json = {{"ids", ids}};
  if (ids_only) return json;
  json["tokens"] = Json::array();
  for (const int32_t id : ids) {
    const std::string_view piece = tokenizer.piece(id);
    json["tokens"].push_back({{"id", id},
                              {"piece", piece},
                              {"bytes", std::vector<uint8_t>(piece.begin(), piece.end())}});
  }
  return json;
}

// The first part of a text: all of it, or whole lines, or what fits.
std::string_view first_part(std::string_view text) {
  constexpr size_t kPart = size_t{4} << 20;
  if (text.size() <= kPart) return text;
  const size_t line = text.rfind('\n', kPart - 1);
  return text.substr(0, line == std::string_view::npos ? kPart : line + 1);
}

Status count_tokens(const Tokenizer& tokenizer, const TokenizeCommand& options, std::ostream& out) {
  std::vector<int64_t> counts(static_cast<size_t>(tokenizer.vocab_size()), 0);
  std::vector<int32_t> ids;
  size_t missing = 0;
  for (const std::string& path : options.frequencies) {
    AERIE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    while (!text.empty()) {
      const std::string_view part = first_part(text);
      ids.clear();
      AERIE_RETURN_IF_ERROR(
          tokenizer.encode(part, {options.add_special, options.special}, ids).with_context(path));
      for (const int32_t id : ids) ++counts[static_cast<size_t>(id)];
      missing += count_missing(tokenizer, part);
      text.remove_prefix(part.size());
    }
    AERIE_RETURN_IF_ERROR(file.check());
  }
  warn_of_missing(missing);
  ids.clear();
  for (size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] > 0) ids.push_back(static_cast<int32_t>(id));
  }
  std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) {
    return counts[static_cast<size_t>(a)] > counts[static_cast<size_t>(b)];
  });
  if (options.json) {
    out << dump(ids);
  } else {
    for (const int32_t id : ids) out << id << '\n';
  }
  return {};
}

}  // namespace

Status tokenize(const TokenizeCommand& options, std::ostream& out) {
  AERIE_ASSIGN_OR_RETURN(const auto tokenizer, open_tokenizer(options.model));
  if (options.decode) return decode(*tokenizer, options, out);
  if (!options.frequencies.empty()) return count_tokens(*tokenizer, options, out);

  std::vector<int32_t> ids;
  AERIE_RETURN_IF_ERROR(
      tokenizer->encode(options.text, {options.add_special, options.special}, ids));
  warn_of_missing(count_missing(*tokenizer, options.text));
  if (options.json) {
    out << dump(to_json(*tokenizer, ids, options.ids_only));
  } else if (options.ids_only) {
    out << fmt::format("[{}]\n", fmt::join(ids, ", "));
  } else {
    for (const int32_t id : ids) {
      out << fmt::format("{:>7}  {}\n", id, visible(tokenizer->piece(id)));
    }
  }
  return {};
}

}  // namespace aerie
