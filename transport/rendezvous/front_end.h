// RendezvousFrontEnd: the sockets of a rendezvous, without its logic: listens, lets in who proves
// the job's secret, and hands whole join messages to a backend.
//
// kolorun's agents put a relay behind it (the Meeting is then in kolorun itself); RendezvousServer
// puts a Meeting behind it. One thread of its own serves everything and makes every call to the
// backend. Strangers are few and short, see ProvingAcceptor: they never keep a rank out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "transport/rendezvous/rendezvous.h"

namespace kolo::internal {

class MeetingBackend {
 public:
  virtual ~MeetingBackend() = default;
  // A proved rank's join, encoded (codec.h: decode_join). `connection` is never used again after
  // left(). The answer goes through RendezvousFrontEnd::deliver().
  virtual void join(std::uint64_t connection, std::string bytes) = 0;
  // Between join() and left(), at most once: see RendezvousClient::tell_harmed(). Encoded (codec.h:
  // decode_harm).
  virtual void harmed(std::uint64_t /*connection*/, std::string /*bytes*/) {}
  // The connection of an earlier join has ended.
  virtual void left(std::uint64_t connection) = 0;
  // The time set by set_alarm() has passed.
  virtual void alarm() {}
  // One line on strangers who were refused; also while the front end ends.
  virtual void warn(const std::string& line) { Logger().warning(line); }
};

class RendezvousFrontEnd {
 public:
  static constexpr std::size_t kMaxJoinBytes = std::size_t{256} << 10;
  static constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;

  // Listens on `address` ("127.0.0.1:0" picks a port). `backend` must outlive the front end.
  // Errors: INVALID_ARGUMENT (address), RESOURCE (port in use, no descriptors).
  static Result<std::unique_ptr<RendezvousFrontEnd>> start(const std::string& address,
                                                           const JobIdentity& identity,
                                                           MeetingBackend& backend);
  virtual ~RendezvousFrontEnd() = default;  // closes everything; no call to the backend after it

  [[nodiscard]] virtual std::string endpoint() const = 0;   // "127.0.0.1:41234"
  [[nodiscard]] virtual RefusalCounts refused() const = 0;  // until now; any thread
  // Sends an encoded answer (codec.h: encode_answer); dropped if the connection has ended.
  // Any thread.
  virtual void deliver(std::uint64_t connection, std::string bytes) = 0;
  // Calls backend.alarm() once after `delay`; replaces an earlier one. kNever: none. Any thread.
  virtual void set_alarm(Nanos delay) = 0;
};

}  // namespace kolo::internal
