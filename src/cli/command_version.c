/* `ebb version`.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <yaml.h>

#include "cli/cli.h"

/* The devices of this machine, and what is known of its GPU. */
static enum ebb_status print_devices(struct ebb_cli *cli)
{
    const struct ebb_device_options options = {.backend = EBB_BACKEND_CUDA};
    struct ebb_device *device = NULL;
    char why[EBB_BACKEND_WHY] = "";
    bool there = ebb_backend_is_there(EBB_BACKEND_CUDA, why, sizeof why);
    printf("devices: cpu%s\n", there ? ", cuda" : "");
    if (!there) {
        printf("cuda: %s\n", why);
        return EBB_OK;
    }
    if (ebb_device_create(cli->ctx, &options, &device) != EBB_OK) {
        printf("cuda: %s\n", ebb_error_text(cli->ctx));
        ebb_error_clear(cli->ctx);
        return EBB_OK;
    }
    printf("cuda: %s\n", ebb_device_name(device));
    ebb_device_free(device);
    return EBB_OK;
}

enum ebb_status ebb_cli_version(struct ebb_cli *cli)
{
    printf("ebb %s\n", EBB_VERSION);
    EBB_TRY(print_devices(cli));
    printf("jansson %s, libyaml %s\n", jansson_version_str(), yaml_get_version_string());
    return EBB_OK;
}
