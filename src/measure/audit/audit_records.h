// The records that an audit is of: which lines of which files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/recording/record.h"

namespace aerie::measure {

struct AuditRecord {
  Record record;
  std::string where;  // "FILE:LINE"
};

struct RecordChoice {
  int64_t since = 0;  // seconds since 1970: replies that ended then or later; 0: all
  int limit = 0;      // the first so many of each file, of what is left then; 0: all
  int sample = 0;     // so many of all files, drawn from what is left then; 0: all
  uint64_t seed = 0;  // of that draw
};

struct ChosenRecords {
  std::vector<AuditRecord> records;  // in the files' order
  // "FILE:LINE" of last lines that somebody could not finish.
  std::vector<std::string> unfinished;
};

// A path is a file, or a folder, which stands for its files NAME.jsonl in order of their names. A
// file that something adds lines to is read as far as it goes now. Of a sample no more than that is
// held at a time. Lines that are left out are checked, too; empty lines count and hold nothing.
// kNotFound for what cannot be read; else errors of parse_record(), but for a folder's unfinished
// lines.
Expected<ChosenRecords> read_records(const std::vector<std::string>& paths,
                                     const RecordChoice& choice);

}  // namespace aerie::measure
