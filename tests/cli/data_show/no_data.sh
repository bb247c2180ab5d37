# SPDX-License-Identifier: Apache-2.0
ebb data model=model
