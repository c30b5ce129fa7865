// peer_simgrid J M: the pipeline of peer_petra with SimGrid's S4U: an actor a stage that sleeps for each action's duration. A
// message takes no time, as there, and is a semaphore, which is cheaper than a mailbox. Prints what peer_petra prints.
#include <simgrid/s4u.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

static const double forward_s = 1000003e-9, backward_s = 2000029e-9, update_s = 1009e-9;

struct pipeline {
  int stages, microbatches;
  std::vector<sg4::SemaphorePtr> up, down; // messages that have come for a stage, from below and from above
  long long actions = 0;
  double end_s = 0;

  void work(double duration_s) {
    sg4::this_actor::sleep_for(duration_s);
    actions++;
    end_s = std::max(end_s, sg4::Engine::get_clock());
  }
  void forward(int j) {
    if (j > 0)
      up[j]->acquire();
    work(forward_s);
    if (j + 1 < stages)
      up[j + 1]->release();
  }
  void backward(int j) {
    if (j + 1 < stages)
      down[j]->acquire();
    work(backward_s);
    if (j > 0)
      down[j - 1]->release();
  }
  void stage(int j) {
    const int ahead = std::min(stages - 1 - j, microbatches);
    for (int slot = 0; slot < microbatches + ahead; slot++) {
      if (slot < microbatches)
        forward(j);
      if (slot >= ahead)
        backward(j);
    }
    work(update_s);
  }
};

int main(int argc, char **argv) {
  sg4::Engine engine(&argc, argv);
  if (argc != 3 || std::atoi(argv[1]) < 1 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: peer_simgrid STAGES MICROBATCHES, both at least 1\n");
    return 2;
  }
  pipeline p{std::atoi(argv[1]), std::atoi(argv[2]), {}, {}};
  auto *zone = sg4::create_full_zone("cluster");
  for (int j = 0; j < p.stages; j++) {
    p.up.push_back(sg4::Semaphore::create(0));
    p.down.push_back(sg4::Semaphore::create(0));
    auto *host = zone->create_host("stage" + std::to_string(j + 1), 1e9)->seal();
    sg4::Actor::create("stage" + std::to_string(j + 1), host, [&p, j] { p.stage(j); });
  }
  zone->seal();
  const auto start = std::chrono::steady_clock::now();
  engine.run();
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%lld %lld %.9f\n", std::llround(1e9 * p.end_s), p.actions, wall_s);
  return 0;
}
