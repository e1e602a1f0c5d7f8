// MeetingDesk: kolorun's end of the rendezvous: joins come from the agents of all hosts, answers
// go back the way they came. One thread, that of the io_context.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/verdict.h"
#include "transport/rendezvous/agent_codec.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

class MeetingDesk {
 public:
  using Deliver = std::function<void(std::size_t host, DeliverAnswer answer)>;

  // `start_timeout`: kolorun's option; each rank has a limit of its own besides. kNever: it alone.
  MeetingDesk(boost::asio::io_context& io, int size, Nanos start_timeout, Deliver deliver);

  void join(std::size_t host, const RelayJoin& join);
  void left(std::size_t host, const RelayLeft& left);
  void harmed(std::size_t host, const RelayHarmed& harmed);
  // Whether `rank` has said that another one's end has ended its job, or was told here that it
  // cannot begin because of another one, and has not joined since.
  [[nodiscard]] bool is_harmed(int rank) const { return find_harm(rank) != nullptr; }
  // Of the harmed, what the first says of the cause; where it names one that was harmed in turn,
  // what that one says.
  [[nodiscard]] std::optional<LostRank> first_lost() const;
  // The process of `rank` has ended, as `how` tells ("rank 1 on a ended (exit code 0)"): the ranks
  // cannot meet any more. Whoever waits, or comes later, gets PEER_LOST at once.
  void ended(int rank, const std::string& how);

 private:
  using Place = std::pair<std::size_t, std::uint64_t>;  // host, and the connection's number there
  void deliver(const std::vector<Meeting::Answer>& answers);
  void answer(const std::vector<Meeting::Answer>& answers);
  struct Told {
    int rank = 0;
    Harm harm;
    bool by_rank = true;  // else known here
  };
  [[nodiscard]] const Told* find_harm(int rank) const;
  void note_harm(int rank, Harm harm, bool told);
  void fail_waiting();
  void watch_time();

  Meeting meeting_;
  Deliver deliver_;
  boost::asio::steady_timer timer_;
  std::map<Place, std::uint64_t> ids_;
  std::map<std::uint64_t, Place> places_;
  std::map<std::uint64_t, int> ranks_;  // by id, of those in the meeting
  std::set<int> known_;                 // ranks that have joined at least once
  std::vector<Told> harms_;             // in the order of their coming, one a rank
  std::set<std::uint64_t> waiting_;     // not answered yet
  Status no_more_;                      // why the ranks cannot meet any more
  int culprit_ = -1;                    // because of whom, or because of whom a round failed
  std::uint64_t next_id_ = 1;
  const SteadyClock clock_;
  Nanos due_ = kNever;  // of the timer
};

}  // namespace kolo::internal
