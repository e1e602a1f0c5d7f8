// The bytes of the rendezvous: joins and answers as Protobuf (rendezvous.proto). Pure functions.
//
// Decoding checks every bound (sizes of texts, number of endpoints and peers), so that what comes
// out may be used without further care; the error says what was wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

inline constexpr int kMaxJobSize = 4096;

[[nodiscard]] std::string encode_join(const Meeting::Join& join);
// `connection` is put into the result; it is not part of the bytes.
[[nodiscard]] Result<Meeting::Join> decode_join(std::uint64_t connection, std::string_view bytes);

// Texts beyond the bound are cut when encoded, and end a decoding.
[[nodiscard]] std::string encode_harm(const Harm& harm);
[[nodiscard]] Result<Harm> decode_harm(std::string_view bytes);

[[nodiscard]] std::string encode_answer(const Meeting::Answer& answer);
[[nodiscard]] Result<Meeting::Answer> decode_answer(std::uint64_t connection,
                                                    std::string_view bytes);

}  // namespace kolo::internal
