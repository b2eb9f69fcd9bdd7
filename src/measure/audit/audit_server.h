// The audit of any server that speaks OpenAI's /completions.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "measure/audit/audit.h"

namespace aerie::measure {

struct ServerAuditOptions {
  std::string url;         // up to what "/completions" follows: "http://127.0.0.1:8000/v1"
  std::string model;       // what the server calls it; empty: it is not told
  std::string api_key;     // empty: none
  bool send_text = false;  // the prompt as text, for servers that take no ids
  double timeout = 600.0;  // seconds for a reply
  // Told after each record. May be null.
  std::function<void(int done, int of)> progress;
  // Asked all the time: true ends the audit with what is complete. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

// Posts each record's request and compares ids where the server tells them ("token_ids" of a
// choice, or "token_id:N" as logprobs' tokens), and the text. Skipped, with the reason, is also
// what the API cannot ask for. A record whose request fails is marked so, and the audit goes on;
// kNotFound, with the last reason, if none was answered at all (three in a row from the start are
// enough).
Expected<AuditReport> audit_server(const ServerAuditOptions& options,
                                   std::span<const AuditRecord> records);

// The body of a record's request. Settings that change nothing are left out, for servers that know
// OpenAI's alone. Requires record.prompt_text for `send_text`.
std::string completion_request(const Record& record, const ServerAuditOptions& options);

// What the body of an answer tells. kInvalidData, starting with `where`, if it is none.
Expected<Replay> parse_completion(const std::string& body, const std::string& where);

}  // namespace aerie::measure
