/* Fuzz target: an adapter's adapter_config.json.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"
#include "model/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ebb_ctx *ctx = fuzz_open();
    struct ebb_adapter_config config = {0};
    fuzz_file("adapter_config.json", data, bytes);
    if (fuzz_succeeded(ctx, ebb_adapter_config_load(ctx, "mem", &config))) {
        FUZZ_CHECK(config.rank > 0 && config.target_count > 0);
        FUZZ_CHECK(config.target_count <= EBB_ADAPTER_TARGETS);
        FUZZ_CHECK(config.dropout >= 0 && config.dropout < 1);
        double scale = ebb_adapter_scale(&config);
        FUZZ_CHECK(scale == scale);
    }
    ebb_adapter_config_clear(ctx, &config);
    fuzz_close(ctx);
    return 0;
}
