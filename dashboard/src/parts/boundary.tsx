// What is shown instead of a page that cannot be drawn: the window around it stays, with the way to all others.
import { Component, type ReactNode } from "react";
import { Trouble } from "./basics";

export class Boundary extends Component<{ children: ReactNode }, { error?: unknown }> {
  override state: { error?: unknown } = {};

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    return <Trouble error={error} again={() => this.setState({ error: undefined })} />;
  }
}
