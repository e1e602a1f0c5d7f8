#include "launcher/meeting_desk.h"

#include "transport/rendezvous/codec.h"

namespace kolo::internal {

MeetingDesk::MeetingDesk(boost::asio::io_context& io, int size, Nanos start_timeout,
                         Deliver deliver)
    : meeting_(size), start_timeout_(start_timeout), deliver_(std::move(deliver)), timer_(io) {}

void MeetingDesk::join(std::size_t host, const RelayJoin& join) {
  const std::uint64_t id = next_id_++;
  ids_[{host, join.connection}] = id;
  places_[id] = {host, join.connection};
  auto decoded = decode_join(id, join.join);
  if (decoded)
    answer(meeting_.join(*std::move(decoded)));
  else
    answer({{id, decoded.status(), {}}});
  watch_time();
}

void MeetingDesk::left(std::size_t host, const RelayLeft& left) {
  const auto found = ids_.find({host, left.connection});
  if (found == ids_.end()) return;
  meeting_.left(found->second);
  places_.erase(found->second);
  ids_.erase(found);
  watch_time();
}

void MeetingDesk::answer(const std::vector<Meeting::Answer>& answers) {
  for (const Meeting::Answer& one : answers) {
    const auto place = places_.find(one.connection);
    if (place == places_.end()) continue;
    deliver_(place->second.first, {place->second.second, encode_answer(one)});
  }
}

// The time of a round begins with the first who waits.
void MeetingDesk::watch_time() {
  const bool waiting = meeting_.anyone_waits();
  if (waiting == timing_) return;
  timing_ = waiting;
  if (!waiting) {
    timer_.cancel();
    return;
  }
  timer_.expires_after(start_timeout_);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    timing_ = false;
    answer(meeting_.expire("the loopback of every host, relayed to kolorun"));
  });
}

}  // namespace kolo::internal
