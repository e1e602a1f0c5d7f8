// Any bytes as a join or an answer: decoding ends with a value within its bounds or an error, and
// what was decoded survives another trip. The first byte picks the message. A decoded join goes
// into a meeting, too.
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((data[0] & 1) != 0) {
    try_answer(bytes);
  } else {
    try_join(bytes);
  }
  return 0;
}
