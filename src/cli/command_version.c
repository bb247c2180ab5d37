/* `ebb version`.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <yaml.h>

#include "cli/cli.h"

enum ebb_status ebb_cli_version(struct ebb_cli *cli)
{
    (void)cli;
    printf("ebb %s\n", EBB_VERSION);
    printf("devices: cpu\n");
    printf("jansson %s, libyaml %s\n", jansson_version_str(), yaml_get_version_string());
    return EBB_OK;
}
