/* How long it takes to open a file and to let go of it again: bench_open FILE ROUNDS */
#include "read/open.h"
#include "measure.h"

int main(int argc, char **argv)
{
    struct best open = {0}, close = {0};
    size_t tensors = 0;
    if (argc != 3)
        give_up("usage: %s FILE ROUNDS", argv[0]);
    for (unsigned long long rounds = number_argument(argv[2], "rounds"); rounds; rounds--) {
        struct ts_bundle *bundle;
        struct ts_error error;
        double start = now(), opened;
        if (ts_open(argv[1], NULL, &bundle, &error) != TS_OK)
            give_up("%s: %s", argv[1], error.message);
        opened = now();
        tensors = bundle->count;
        ts_bundle_free(bundle);
        best_add(&close, now() - opened);
        best_add(&open, opened - start);
    }
    printf("{\"tensors\": %zu, \"open_s\": %.9f, \"close_s\": %.9f}\n", tensors, open.seconds, close.seconds);
    return 0;
}
