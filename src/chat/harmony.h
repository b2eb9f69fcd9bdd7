// Names of control tokens in OpenAI's "harmony" format.
#pragma once

#include <string_view>

namespace aerie::chat::harmony {

inline constexpr std::string_view kStart = "<|start|>";
inline constexpr std::string_view kChannel = "<|channel|>";
inline constexpr std::string_view kConstrain = "<|constrain|>";
inline constexpr std::string_view kMessage = "<|message|>";
inline constexpr std::string_view kEnd = "<|end|>";        // of a message
inline constexpr std::string_view kCall = "<|call|>";      // of a reply that calls
inline constexpr std::string_view kReturn = "<|return|>";  // of any other
inline constexpr std::string_view kAnalysis = "analysis";
inline constexpr std::string_view kCommentary = "commentary";
inline constexpr std::string_view kFinal = "final";

}  // namespace aerie::chat::harmony
