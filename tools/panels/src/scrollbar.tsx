// In place of react-custom-scrollbars-2, whose default export esbuild reads otherwise than webpack:
// a picture has no scrollbar.

import * as React from "react";

const Scrollbars = ({ children }: { children?: React.ReactNode }) => <div>{children}</div>;

export { Scrollbars };
export default Scrollbars;
