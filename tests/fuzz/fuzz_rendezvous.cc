// Any bytes as a join or an answer: decoding ends with a value within its bounds or an error, and
// what was decoded survives another trip. The first byte picks the message; or the bytes are joins
// and departures (one byte of choice, two of length, a join) at one meeting of three, which never
// answers more often than it was asked, nor completes without all.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "transport/rendezvous/codec.h"

using namespace kolo::internal;

namespace {

void try_join(std::string_view bytes) {
  Result<Meeting::Join> join = decode_join(1, bytes);
  if (!join) return;
  const std::string again = encode_join(*join);
  const Result<Meeting::Join> back = decode_join(1, again);
  if (!back || encode_join(*back) != again) std::abort();
  Meeting meeting(2);
  const auto answers = meeting.join(*join);
  if (answers.size() > 1) std::abort();  // one join never completes a meeting of two
  meeting.left(1);
  if (meeting.anyone_waits()) std::abort();
}

void try_answer(std::string_view bytes) {
  Result<Meeting::Answer> answer = decode_answer(1, bytes);
  if (!answer) return;
  if (answer->table.peers.size() > static_cast<std::size_t>(kMaxJobSize)) std::abort();
  const std::string again = encode_answer(*answer);
  const Result<Meeting::Answer> back = decode_answer(1, again);
  if (!back || encode_answer(*back) != again) std::abort();
}

void try_meeting(std::string_view input) {
  constexpr int kSize = 3;
  Meeting meeting(kSize);
  std::size_t asked = 0;
  std::size_t answered = 0;
  std::uint64_t connection = 0;
  const auto count = [&](const std::vector<Meeting::Answer>& answers) {
    answered += answers.size();
    for (const Meeting::Answer& answer : answers) {
      if (answer.connection > connection) std::abort();
      if (!answer.status.is_ok()) continue;
      if (answer.table.peers.size() != kSize) std::abort();
      for (int rank = 0; rank < kSize; ++rank) {
        if (answer.table.peers[static_cast<std::size_t>(rank)].rank != rank) std::abort();
      }
    }
  };
  while (input.size() >= 3) {
    const auto choice = static_cast<unsigned char>(input[0]);
    const std::size_t stated = std::size_t{static_cast<unsigned char>(input[1])} * 256 +
                               static_cast<unsigned char>(input[2]);
    const std::size_t size = std::min(stated, input.size() - 3);
    auto join = decode_join(++connection, input.substr(3, size));
    input.remove_prefix(3 + size);
    if (join) {
      if ((choice & 1) == 0) {  // as a real one would be, in all but its rank
        join->size = kSize;
        join->protocol = kProtocolVersion;
      }
      ++asked;
      count(meeting.join(*std::move(join)));
    }
    if ((choice & 2) != 0) meeting.left(1 + choice / 8 % connection);
    if ((choice & 4) != 0) count(meeting.expire("here"));
  }
  if (answered > asked) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((data[0] & 2) != 0) {
    try_meeting(bytes);
  } else if ((data[0] & 1) != 0) {
    try_answer(bytes);
  } else {
    try_join(bytes);
  }
  return 0;
}
