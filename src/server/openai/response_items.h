// The items of a response: reasoning, messages and calls, one after the other.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "chat/reply_parser.h"
#include "format/json.h"
#include "server/models/api_state.h"

namespace aerie::server {

// Collects the items that a reply's parts make, and says what streams say about them.
class ResponseItems {
 public:
  // What an event is handed to: its type, and what it says beside that.
  using Say = std::function<void(const char* type, Json more)>;

  // The state must outlive it.
  explicit ResponseItems(const ApiState& state) : state_(state) {}

  // `extra`: members for the event of the part.
  void add(const chat::ReplyPart& part, const Json& extra, const Say& say);
  // An item in which nothing was said yet, where none is open: of a reply that says nothing.
  void open_message(const Say& say);
  // The end of the reply; `status` is that of the last item.
  void finish(const char* status, const Say& say);

  bool any() const { return is_open_ || !items_.empty(); }
  // Those that are finished.
  const Json& items() const { return items_; }

 private:
  using Kind = chat::ReplyPart::Kind;

  void open(Kind kind, const std::string& name, const Say& say);
  void close(const char* status, const Say& say);
  Json about_part(Json more) const;
  Json part() const;

  const ApiState& state_;
  Json items_ = Json::array();
  bool is_open_ = false;
  Kind kind_ = Kind::kContent;  // of the open item; kCall for calls
  Json item_;                   // the open one, without its content
  std::string text_;            // or arguments
};

}  // namespace aerie::server
